// The tools that the charts of all pages share. Every chart follows the pointer and the arrow keys in the same way.
"use strict";
const kit = (() => {
  // -- small tools ---------------------------------------------------------------------------------------------------

  const minus = (text) => text.replace("-", "−");
  const fixed = (value, digits) => minus(value.toFixed(digits));
  const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;
  const whole = (value) => Math.round(value).toLocaleString("en-US");
  const loss = (value) => value.toPrecision(3);
  const superscript = (power) => [...String(power)].map((sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]).join("");
  const finite = (value) => value !== null;
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

  function short(value) {
    const [unit, name] = Math.abs(value) >= 1e6 ? [1e6, " M"] : Math.abs(value) >= 1e4 ? [1e3, " k"] : [1, ""];
    return minus(String(+(value / unit).toPrecision(4))) + name;
  }

  function ticks(low, high, count) {
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((k) => k * power >= rough * 0.999);
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => +((first + i) * step).toPrecision(12));
  }

  function element(name, attributes = {}, parent = null, text = null) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    if (parent) parent.append(node);
    return node;
  }

  function html(name, className, parent, text = "") {
    const node = document.createElement(name);
    node.className = className;
    node.textContent = text;
    parent.append(node);
    return node;
  }

  const key = (method, parent) => html("span", `key c${method.colour}`, parent);

  // -- a chart: an SVG as wide as its place, a cursor moved by pointer and keys, a tip with the values under it ------

  const charts = [];

  function chart(id, label, draw) {
    const place = document.getElementById(id);
    if (!place) return null;
    const svg = element("svg", { role: "img", tabindex: 0, "aria-label": `${label} Arrow keys read the values out.` }, place);
    const tip = html("div", "tip", place);
    tip.setAttribute("role", "status");
    let view = null;
    let at = null;
    let drawn = 0;

    function redraw() {
      drawn = place.clientWidth;
      svg.replaceChildren();
      view = draw(svg, drawn) ?? empty(svg, drawn);
      show(null);
    }

    function show(where) {
      at = where;
      tip.replaceChildren();
      view.mark(at);
      if (!at) return;
      const { lines, from, to, y } = view.tell(at);
      for (const { method, text, value, head } of lines) {
        const line = html("div", head ? "head" : "", tip);
        if (method) key(method, line);
        html("span", "", line, text);
        if (value) html("b", "", line, value);
      }
      // The tip stands to the right of its point, to the left where there is no room, and never outside of the chart.
      const room = place.clientWidth - tip.offsetWidth;
      const left = to + 14 <= room ? to + 14 : from - 14 - tip.offsetWidth;
      tip.style.left = `${clamp(left, 0, room)}px`;
      tip.style.top = `${clamp(y - tip.offsetHeight / 2, 0, Math.max(0, place.clientHeight - tip.offsetHeight))}px`;
    }

    const follow = (event) => {
      const box = place.getBoundingClientRect();
      show(view.nearest(event.clientX - box.left, event.clientY - box.top));
    };
    place.addEventListener("pointermove", follow);
    place.addEventListener("pointerdown", follow);
    place.addEventListener("pointerleave", () => show(null));
    place.addEventListener("focusout", () => show(null));
    place.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
      if (event.key === "Escape") show(null);
      else if (event.key in moves) show(view.step(at, ...moves[event.key]));
      else return;
      event.preventDefault();
    });
    redraw();
    charts.push(redraw);
    new ResizeObserver(() => {
      if (place.clientWidth !== drawn) requestAnimationFrame(redraw);
    }).observe(place);
    return redraw;
  }

  const redrawAll = () => charts.forEach((redraw) => redraw());

  function empty(svg, width) {
    svg.setAttribute("height", 120);
    element("text", { x: width / 2, y: 60, "text-anchor": "middle" }, svg, "Nothing to show.");
    return { nearest: () => null, step: () => null, mark: () => {} };
  }

  // The frame of a chart: both axes with their ticks, and the functions that turn values into places.
  function frame(svg, { width, height, left, bottom = 42, top = 10, right = 14, x, y, xLabel, xForm, yForm, xTicks, yTicks }) {
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    const along = (domain, from, to) => (v) => from + ((v - domain[0]) / (domain[1] - domain[0] || 1)) * (to - from);
    const px = along(x, left, width - right);
    const py = along(y, height - bottom, top);
    for (const v of yTicks ?? ticks(...y, 6)) {
      element("line", { class: "axis", x1: left, x2: width - right, y1: py(v), y2: py(v) }, svg);
      element("text", { x: left - 8, y: py(v) + 4, "text-anchor": "end" }, svg, yForm(v));
    }
    for (const v of xTicks ?? ticks(...x, Math.max(2, Math.min(9, (width - left) / 85)))) {
      element("text", { x: px(v), y: height - bottom + 18, "text-anchor": "middle" }, svg, xForm(v));
    }
    element("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, svg, xLabel);
    return { px, py, inner: { x: left, y: top, width: width - right - left, height: height - bottom - top } };
  }

  return { chart, clamp, element, finite, fixed, frame, html, key, loss, minus, percent, redrawAll, short, superscript, ticks, whole };
})();
