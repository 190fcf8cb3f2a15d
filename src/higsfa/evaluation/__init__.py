"""How estimates are judged: metrics and protocols of evaluation."""
