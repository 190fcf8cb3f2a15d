"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  const slider = find("frame"), play = find("play"), canvases = ["view", "box", "features"].map(find);
  const [view, box, features] = canvases;
  const n = data.x.length, [a, b] = data.size, scale = 420 / a, rowHeight = 34;
  view.width = data.width; view.height = data.height;
  box.width = Math.round(a * scale); box.height = Math.round(b * scale);
  features.width = 520; features.height = rowHeight * data.features.length;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
  const sprite = new Image();
  let timer = null;

  function drawBox(t) {
    const c = box.getContext("2d");
    c.clearRect(0, 0, box.width, box.height);
    c.strokeStyle = colour("--soft"); c.globalAlpha = 0.35; c.beginPath();
    for (let i = 0; i < n; i++) c.lineTo(data.x[i] * scale, data.y[i] * scale);
    c.stroke();
    c.globalAlpha = 1; c.strokeStyle = colour("--accent"); c.lineWidth = 2; c.beginPath();
    for (let i = Math.max(0, t - 20); i <= t; i++) c.lineTo(data.x[i] * scale, data.y[i] * scale);
    c.stroke();
    const x = data.x[t] * scale, y = data.y[t] * scale, phi = data.direction[t];
    c.fillStyle = colour("--accent"); c.beginPath(); c.arc(x, y, 6, 0, 7); c.fill();
    c.beginPath(); c.moveTo(x, y); c.lineTo(x + 22 * Math.cos(phi), y + 22 * Math.sin(phi)); c.stroke();
    c.lineWidth = 1;
  }

  function drawFeatures(t) {
    const c = features.getContext("2d"), left = 34;
    const at = (i) => left + i * (features.width - left - 6) / Math.max(1, n - 1);
    c.clearRect(0, 0, features.width, features.height);
    c.font = "13px system-ui, sans-serif";
    data.features.forEach((values, k) => {
      const middle = (k + 0.5) * rowHeight, height = (i) => middle - values[i] * rowHeight / 6.5;
      c.fillStyle = colour("--soft"); c.fillText(String(k + 1), 8, middle + 4);
      c.strokeStyle = colour("--ink"); c.beginPath();
      for (let i = 0; i < n; i++) c.lineTo(at(i), height(i));
      c.stroke();
      c.fillStyle = colour("--accent"); c.beginPath(); c.arc(at(t), height(t), 3.5, 0, 7); c.fill();
    });
    c.strokeStyle = colour("--accent"); c.beginPath(); c.moveTo(at(t), 0); c.lineTo(at(t), features.height); c.stroke();
  }

  function draw() {
    const t = Number(slider.value);
    find("number").textContent = String(t + 1);
    if (sprite.complete) view.getContext("2d").drawImage(sprite, 0, -t * data.height);
    drawBox(t);
    drawFeatures(t);
  }

  function stop() { clearInterval(timer); timer = null; play.textContent = "Play"; }
  play.addEventListener("click", () => {
    if (timer) { stop(); return; }
    play.textContent = "Stop";
    timer = setInterval(() => { slider.value = (Number(slider.value) + 1) % n; draw(); }, 120);
  });
  slider.addEventListener("input", draw);
  sprite.addEventListener("load", draw);
  sprite.src = data.views;
  draw();
})();
