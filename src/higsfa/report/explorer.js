"use strict";
// The page keeps one thing: the features of the face as they are now. Pictures, estimates and the places of all
// sliders are computed from them. A slider changes the features, and then everything is shown anew.

(() => {
  // A face moved along a numeric label keeps its deviation from the class means. In the directions that separate the
  // classes it keeps at most this much of a typical deviation, because estimates mean little far from all classes; the
  // rest fades within this part of the label's range.
  const KEPT_DEVIATION = 0.7;
  const FADING = 0.1;
  const CHANGE_GAIN = 2; // of the view "Change only"
  const QUIET = 500; // milliseconds without changes before a screen reader is told

  // ------------------------------------------------------------------------------------------- reading the data

  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const floats = (text) => new Float32Array(bytes(text).buffer);

  const data = JSON.parse(document.getElementById("data").textContent);
  const mean = floats(data.mean);
  const deviation = floats(data.deviation);
  const steps = floats(data.steps);
  const components = new Int8Array(bytes(data.components).buffer);
  const faces = data.faces.map((face) => ({
    features: Float64Array.from(floats(face.features)),
    photograph: bytes(face.photograph),
    reconstruction: bytes(face.reconstruction),
    annotated: face.annotated,
  }));
  const labels = data.labels.map((label) => ({
    ...label,
    center: floats(label.center),
    projection: floats(label.projection), // features to the coordinates of the Gaussians: (n_features, rank)
    lift: floats(label.lift), // and back: (rank, n_features)
    means: floats(label.means), // (classes, rank)
    factors: floats(label.factors), // (classes, rank, rank)
    logWeights: floats(label.log_weights),
    telling: floats(label.telling ?? ""), // directions that separate the classes of a numeric label: (n, rank)
  }));
  const nValues = data.height * data.width * data.channels;

  // ------------------------------------------------------------------------------------------- label estimates

  // Coordinates u of features y, in which the label's Gaussians are given.
  function project(label, y) {
    const u = new Float64Array(label.rank);
    for (let j = 0; j < label.n_features; j++) {
      const centred = y[j] - label.center[j];
      for (let i = 0; i < label.rank; i++) u[i] += centred * label.projection[j * label.rank + i];
    }
    return u;
  }

  // Adds to features y a step du in the coordinates of the Gaussians.
  function addStep(label, y, du) {
    for (let i = 0; i < label.rank; i++) {
      for (let j = 0; j < label.n_features; j++) y[j] += du[i] * label.lift[i * label.n_features + j];
    }
  }

  // Probabilities of the classes, by Bayes' rule; without the class `excluded`, if there is one.
  function posterior(label, y, excluded = -1) {
    const r = label.rank;
    const u = project(label, y);
    const joint = Array.from(label.logWeights, (logWeight, c) => {
      if (c === excluded) return -Infinity;
      let distance = 0;
      for (let k = 0; k < r; k++) {
        let w = 0;
        for (let i = 0; i < r; i++) w += (u[i] - label.means[c * r + i]) * label.factors[(c * r + i) * r + k];
        distance += w * w;
      }
      return logWeight - distance / 2;
    });
    const largest = Math.max(...joint);
    const weights = joint.map((value) => Math.exp(value - largest));
    const total = weights.reduce((a, b) => a + b);
    return weights.map((weight) => weight / total);
  }

  // A numeric label: mean of the class values. A categorical one: the most probable class.
  function estimate(label, y) {
    const p = posterior(label, y);
    if (label.numeric) {
      const value = p.reduce((sum, share, c) => sum + share * label.classes[c], 0);
      return { value: label.integer ? Math.floor(Number(value.toFixed(6))) : value };
    }
    const best = p.indexOf(Math.max(...p));
    return { value: label.classes[best], probability: p[best] };
  }

  function estimateText(label, { value, probability }) {
    return label.numeric ? value.toFixed(label.decimals) : `${value} (${Math.round(100 * probability)} %)`;
  }

  // ------------------------------------------------------------------------------------------- moving along labels

  const classMean = (label, c) => label.means.subarray(c * label.rank, (c + 1) * label.rank);

  // Mean of the features of faces with this value of a numeric label, between the class means.
  function meanAt(label, value) {
    const last = label.classes.length - 1;
    let c = label.classes.findIndex((border) => border > value);
    if (c === 0) return classMean(label, 0);
    if (c < 0) return classMean(label, last);
    const low = label.classes[c - 1];
    const share = (value - low) / (label.classes[c] - low);
    const before = classMean(label, c - 1);
    return classMean(label, c).map((m, i) => share * m + (1 - share) * before[i]);
  }

  // The part of a deviation that lies in the directions that separate the classes.
  function tellingPart(label, own) {
    const part = new Float64Array(label.rank);
    for (let start = 0; start < label.telling.length; start += label.rank) {
      const direction = label.telling.subarray(start, start + label.rank);
      const along = direction.reduce((sum, d, i) => sum + d * own[i], 0);
      direction.forEach((d, i) => (part[i] += along * d));
    }
    return part;
  }

  // Features of the face `from`, estimated to have `start`, at another value of a numeric label.
  function movedTo(label, from, start, value) {
    const y = from.slice();
    const u = project(label, y);
    const here = meanAt(label, start);
    const there = meanAt(label, value);
    const telling = tellingPart(label, u.map((x, i) => x - here[i]));
    const typical = KEPT_DEVIATION * Math.sqrt(label.telling.length / label.rank);
    const kept = Math.min(1, typical / Math.hypot(...telling, 1e-9));
    const range = label.classes[label.classes.length - 1] - label.classes[0] || 1;
    const share = kept ** Math.min(1, Math.abs(value - start) / (FADING * range));
    addStep(label, y, telling.map((x, i) => there[i] - here[i] - (1 - share) * x));
    return y;
  }

  // The path of face y to a class of a categorical label: from the means of the other classes, weighted by their
  // probabilities, to the mean of this class.
  function pathTo(label, c, y) {
    const from = new Float64Array(label.rank);
    posterior(label, y, c).forEach((share, k) => classMean(label, k).forEach((m, i) => (from[i] += share * m)));
    return { from, step: from.map((m, i) => label.means[c * label.rank + i] - m) };
  }

  // Where on this path the face is: 0 at its start, 1 at the mean of the class.
  function placeOn({ from, step }, label, y) {
    const u = project(label, y);
    const along = step.reduce((sum, s, i) => sum + s * (u[i] - from[i]), 0);
    return along / (step.reduce((sum, s) => sum + s * s, 0) || 1);
  }

  // ------------------------------------------------------------------------------------------- the face as it is now

  let face, features; // set by chooseFace
  let anchor = null; // the face from which a label's slider is being moved, as long as nothing else is moved

  function moveFeature(position, deviations) {
    features[position] = mean[position] + deviation[position] * deviations;
    anchor = null;
  }

  function moveLabel(label, target, value) {
    if (anchor === null || anchor.label !== label || anchor.target !== target) {
      anchor = { label, target, features: features.slice() };
    }
    if (label.numeric) {
      const start = estimate({ ...label, integer: false }, anchor.features).value;
      features = movedTo(label, anchor.features, start, value);
    } else {
      const path = pathTo(label, target, anchor.features);
      const distance = value / 100 - placeOn(path, label, anchor.features);
      features = anchor.features.slice();
      addStep(label, features, path.step.map((s) => s * distance));
    }
  }

  // ------------------------------------------------------------------------------------------- pictures

  const canvas = document.getElementById("picture");
  const small = document.createElement("canvas"); // the picture in its own size; the visible canvas shows it enlarged
  small.width = data.width;
  small.height = data.height;
  const scale = Math.max(1, Math.round(768 / Math.max(data.width, data.height)));
  canvas.width = data.width * scale;
  canvas.height = data.height * scale;

  // What the decoder makes of the difference between the features now and those of the photograph.
  function pictureChange() {
    const change = new Float32Array(nValues);
    features.forEach((y, j) => {
      const weight = ((y - face.features[j]) / deviation[j]) * steps[j];
      if (weight === 0) return;
      const row = components.subarray(j * nValues, (j + 1) * nValues);
      for (let p = 0; p < nValues; p++) change[p] += weight * row[p];
    });
    return change;
  }

  function valuesOf(view) {
    if (view === "photograph") return face.photograph;
    const change = pictureChange();
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
    large.imageSmoothingEnabled = true;
    large.imageSmoothingQuality = "high";
    large.drawImage(small, 0, 0, canvas.width, canvas.height);
  }

  // ------------------------------------------------------------------------------------------- showing everything

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
      const value = isMoving ? Number(input.value) : estimate(label, features).value;
      return [value, value.toFixed(label.decimals)];
    }
    const value = isMoving ? Number(input.value) : 100 * placeOn(pathTo(label, target, features), label, features);
    return [value, `${Math.round(value)} %`];
  }

  function show() {
    const texts = labels.map((label) => estimateText(label, estimate(label, features)));
    labels.forEach((label, i) => {
      const put = (kind, text) => {
        const cell = document.querySelector(`[data-${kind}="${i}"]`);
        if (cell) cell.textContent = text;
      };
      put("now", texts[i]);
      put("first", estimateText(label, estimate(label, face.features)));
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

  // ------------------------------------------------------------------------------------------- listening

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
      if (feature !== null) moveFeature(feature, value);
      else moveLabel(label, target, value);
      show();
    });
  }
  for (const input of document.querySelectorAll("input[name=face]")) input.addEventListener("change", chooseFace);
  for (const input of document.querySelectorAll("input[name=view]")) input.addEventListener("change", show);
  document.getElementById("reset").addEventListener("click", chooseFace);
  chooseFace();
})();
