"""The demonstration, on fewer and smaller faces, and what it says about the numbers."""

import json
import subprocess
import sys

from PIL import Image

from cli.commands import CONFIG, ENVIRONMENT
from higsfa.demo import findings

SMALLER = """
import sys
import higsfa.demo
higsfa.demo.EXPERIMENT = sys.argv.pop(1)
from higsfa.cli import main
main()
"""


def test_demo_tells_the_whole_story(tmp_path):
    config = tmp_path / "smaller.toml"
    config.write_text(CONFIG.replace('["pca", "chance"]', '["hgsfa", "pca", "lda", "chance"]'))
    process = subprocess.run(
        [sys.executable, "-c", SMALLER, str(config), "demo", "--out", str(tmp_path / "demo")],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    metrics = json.loads((tmp_path / "demo" / "metrics.json").read_text())
    assert {method["name"] for method in metrics["methods"]} == {"HiGSFA", "HGSFA", "PCA", "PCA + LDA", "chance"}
    assert {label["name"] for label in metrics["labels"]} == {"age", "gender", "race"}
    for line in findings(metrics):
        assert line in process.stdout
    for name in ("report.html", "explorer.html", "model.higsfa"):
        assert (tmp_path / "demo" / name).stat().st_size > 1000
    with Image.open(tmp_path / "demo" / "pictures" / "face1.png") as face:
        assert face.size == (24, 24)  # what the network was tested on, pixel by pixel
    for name in ("ages.png", "reconstructions.png", "pictures/face1.png"):
        Image.open(tmp_path / "demo" / name).verify()
    assert "higsfa configs folder" in process.stdout
    assert "statistical guesses" in process.stderr


def test_findings_state_the_order_that_came_out():
    def method(name, mae, delta, rebuilt, role="comparison"):
        labels = {"age": {"mae": {"mean": mae}}}
        return {"name": name, "role": role, "labels": labels} | {"delta": delta, "reconstruction_error": rebuilt}

    methods = [
        method("A", 5.0, {"test": [0.2]}, {"global": 0.5}, "main"),
        method("B", 4.0, {"test": [0.4]}, None),
        method("C", 3.0, None, {"global": 0.1}),
        method("D", 1.0, None, None, "chance"),
    ]
    age, slow, rebuilt = findings({"methods": methods})
    assert age.endswith(": C 3.00 < B 4.00 < A 5.00")
    assert slow.endswith(": A 0.20 < B 0.40")
    assert rebuilt.endswith(": C 0.10 < A 0.50")
