"use strict";
// The page keeps one thing: the features of the face as they are now. Pictures, estimates and positions of sliders are
// computed from them. A slider changes the features, and then everything is shown again.

(() => {
  // A face moved along a numeric label keeps its deviation from the class means. In the directions that separate the
  // classes it keeps at most this much of a typical deviation, because estimates mean little far from all classes. The
  // rest fades out within this fraction of the label's range.
  const KEPT_DEVIATION = 0.7;
  const FADING = 0.1;
  const CHANGE_GAIN = 2; // of the view "Change only"
  const QUIET = 500; // milliseconds without changes before a screen reader is told

  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

  // A label has: `projection`, from features to the coordinates of its Gaussians, and `lift`, back; for each class a
  // vector of `means` and a whitening matrix of `factors`; if numeric, `telling` directions that separate the classes.
  const data = JSON.parse(document.getElementById("data").textContent);
  const { mean, deviation, steps, labels } = data;
  const components = data.components.map((row) => new Int8Array(bytes(row).buffer));
  const faces = data.faces.map((face) => ({
    ...face,
    photograph: bytes(face.photograph),
    reconstruction: bytes(face.reconstruction),
  }));

  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const minus = (a, b) => Float64Array.from(a, (x, i) => x - b[i]);
  // The sum of rows of this length, each times its weight.
  function combine(weights, rows, length) {
    const sum = new Float64Array(length);
    rows.forEach((row, k) => {
      if (weights[k] !== 0) for (let i = 0; i < length; i++) sum[i] += weights[k] * row[i];
    });
    return sum;
  }

  // Coordinates of features y, in which the label's Gaussians are given.
  function project(label, y) {
    return combine(label.center.map((c, j) => y[j] - c), label.projection, label.means[0].length);
  }

  // Features y after a step in these coordinates.
  function moved(label, y, step) {
    const change = combine(step, label.lift, label.center.length);
    return y.map((x, j) => x + (change[j] ?? 0));
  }

  // Probabilities of the classes, by Bayes' rule; without the class `excluded`, if there is one.
  function posterior(label, y, excluded = -1) {
    const u = project(label, y);
    const joint = label.log_weights.map((logWeight, c) => {
      if (c === excluded) return -Infinity;
      const w = combine(minus(u, label.means[c]), label.factors[c], u.length);
      return logWeight - dot(w, w) / 2;
    });
    const largest = Math.max(...joint);
    const weights = joint.map((value) => Math.exp(value - largest));
    const total = weights.reduce((a, b) => a + b);
    return weights.map((weight) => weight / total);
  }

  // The estimate of a numeric label: the mean of the class values.
  function estimate(label, y) {
    const value = dot(posterior(label, y), label.classes);
    return label.integer ? Math.floor(Number(value.toFixed(6))) : value;
  }

  // The estimate as a text; for a categorical label, the most probable class.
  function estimateText(label, y) {
    if (label.numeric) return estimate(label, y).toFixed(label.decimals);
    const p = posterior(label, y);
    const best = p.indexOf(Math.max(...p));
    return `${label.classes[best]} (${Math.round(100 * p[best])} %)`;
  }

  // Mean of the faces with this value of a numeric label, between the class means.
  function meanAt({ classes, means }, value) {
    const c = classes.findIndex((border) => border > value);
    if (c <= 0) return means.at(c); // c is -1 beyond the last class
    const share = (value - classes[c - 1]) / (classes[c] - classes[c - 1]);
    return means[c].map((m, i) => share * m + (1 - share) * means[c - 1][i]);
  }

  // Features of the face `from`, estimated to have `start`, at another value of a numeric label.
  function movedTo(label, from, start, value) {
    const here = meanAt(label, start);
    const own = minus(project(label, from), here);
    const telling = combine(label.telling.map((direction) => dot(direction, own)), label.telling, own.length);
    const typical = KEPT_DEVIATION * Math.sqrt(label.telling.length);
    const kept = Math.min(1, typical / Math.hypot(...telling, 1e-9));
    const range = label.classes.at(-1) - label.classes[0] || 1;
    const share = kept ** Math.min(1, Math.abs(value - start) / (FADING * range));
    const step = minus(meanAt(label, value), here);
    return moved(label, from, step.map((x, i) => x - (1 - share) * telling[i]));
  }

  // The path of face y to a class of a categorical label: from the means of the other classes, weighted by their
  // probabilities, to the mean of this class.
  function pathTo(label, c, y) {
    const from = combine(posterior(label, y, c), label.means, label.means[0].length);
    return { from, step: minus(label.means[c], from) };
  }

  // Where on this path the face is: 0 at its start, 1 at the mean of the class.
  function placeOn({ from, step }, label, y) {
    return dot(step, minus(project(label, y), from)) / (dot(step, step) || 1);
  }

  let face, features; // set by chooseFace
  let anchor = null; // the face from which a label's slider is being moved, as long as nothing else is moved

  function moveLabel(label, target, value) {
    if (anchor === null || anchor.label !== label || anchor.target !== target) {
      anchor = { label, target, features: features.slice() };
    }
    if (label.numeric) {
      const start = estimate({ ...label, integer: false }, anchor.features);
      features = movedTo(label, anchor.features, start, value);
    } else {
      const path = pathTo(label, target, anchor.features);
      const distance = value / 100 - placeOn(path, label, anchor.features);
      features = moved(label, anchor.features, path.step.map((s) => s * distance));
    }
  }

  const canvas = document.getElementById("picture");
  const small = document.createElement("canvas"); // the picture in its own size; the visible canvas shows it enlarged
  const scale = Math.max(1, Math.round(768 / Math.max(data.width, data.height)));
  Object.assign(small, { width: data.width, height: data.height });
  Object.assign(canvas, { width: data.width * scale, height: data.height * scale });

  function valuesOf(view) {
    if (view === "photograph") return face.photograph;
    // What the decoder makes of the difference between the features now and those of the photograph.
    const weights = features.map((y, j) => ((y - face.features[j]) / deviation[j]) * steps[j]);
    const change = combine(weights, components, face.photograph.length);
    if (view === "change") return change.map((d) => 128 + CHANGE_GAIN * d);
    const base = view === "reconstruction" ? face.reconstruction : face.photograph;
    return change.map((d, p) => base[p] + d);
  }

  function draw(view) {
    const values = valuesOf(view);
    const context = small.getContext("2d");
    const image = context.createImageData(data.width, data.height); // rounds and clips what is written to it
    for (let p = 0; p < data.width * data.height; p++) {
      for (let c = 0; c < 3; c++) image.data[4 * p + c] = values[p * data.channels + (data.channels === 3 ? c : 0)];
      image.data[4 * p + 3] = 255;
    }
    context.putImageData(image, 0, 0);
    const large = canvas.getContext("2d");
    large.imageSmoothingQuality = "high";
    large.drawImage(small, 0, 0, canvas.width, canvas.height);
  }

  const sliders = [...document.querySelectorAll("input[type=range]")].map((input) => ({
    input,
    output: input.parentElement.querySelector("output"),
    feature: "feature" in input.dataset ? Number(input.dataset.feature) : null,
    label: labels[input.dataset.label],
    target: "class" in input.dataset ? Number(input.dataset.class) : null,
  }));
  const announcement = document.getElementById("announcement");
  let quiet = 0;

  // Value of a slider and its text. A label's slider that is being moved stays where its user puts it.
  function readSlider({ input, feature, label, target }) {
    if (feature !== null) {
      const value = (features[feature] - mean[feature]) / deviation[feature];
      const digits = Math.abs(value).toFixed(1);
      return [value, digits === "0.0" ? digits : (value < 0 ? "−" : "+") + digits];
    }
    const isMoving = anchor?.label === label && anchor.target === target;
    if (label.numeric) {
      const value = isMoving ? Number(input.value) : estimate(label, features);
      return [value, value.toFixed(label.decimals)];
    }
    const value = isMoving ? Number(input.value) : 100 * placeOn(pathTo(label, target, features), label, features);
    return [value, `${Math.round(value)} %`];
  }

  function show() {
    const texts = labels.map((label) => estimateText(label, features));
    labels.forEach((label, i) => {
      const put = (kind, text) => {
        const cell = document.querySelector(`[data-${kind}="${i}"]`);
        if (cell) cell.textContent = text;
      };
      put("now", texts[i]);
      put("first", estimateText(label, face.features));
      put("annotated", face.annotated[label.name] ?? "–");
    });
    sliders.forEach((slider) => {
      const [value, text] = readSlider(slider);
      slider.input.value = value;
      slider.input.setAttribute("aria-valuetext", text);
      slider.output.textContent = text;
    });
    draw(document.querySelector("input[name=view]:checked").value);
    clearTimeout(quiet);
    quiet = setTimeout(() => {
      announcement.textContent = labels.map((label, i) => `${label.name} ${texts[i]}`).join(", ");
    }, QUIET);
  }

  // The chosen face as its photograph has it.
  function chooseFace() {
    const number = Number(document.querySelector("input[name=face]:checked").value);
    face = faces[number];
    features = face.features.slice();
    anchor = null;
    canvas.setAttribute("aria-label", `Face ${number + 1}`);
    show();
  }

  for (const { input, feature, label, target } of sliders) {
    input.addEventListener("input", () => {
      const value = Number(input.value);
      if (feature === null) {
        moveLabel(label, target, value);
      } else {
        features[feature] = mean[feature] + deviation[feature] * value;
        anchor = null;
      }
      show();
    });
  }
  for (const input of document.querySelectorAll("input[name=face]")) input.addEventListener("change", chooseFace);
  for (const input of document.querySelectorAll("input[name=view]")) input.addEventListener("change", show);
  document.getElementById("reset").addEventListener("click", chooseFace);
  chooseFace();
})();
