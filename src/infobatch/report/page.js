// Draws the report's charts from the JSON block above, with the tools of chart.js.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const methods = data.methods;
  const hidden = new Set();
  let zoomed = false;
  let picked = data.picked;

  document.querySelectorAll("[data-drawn]").forEach((part) => (part.hidden = false));

  const { chart, clamp, element, finite, fixed, frame, html, key, loss, percent, redrawAll, short, superscript } = kit;
  const signed = (value) => (value > 0 ? "+" : "") + fixed(value, data.digits);

  // -- curves: a line per method with its band -----------------------------------------------------------------------

  function curves(id, { label, along, start = 0, xLabel, xForm, yForm, form, floor = null, ceiling = null, zooms = false }) {
    chart(id, label, (svg, width) => {
      const height = id === "value" ? clamp(width * 0.45, 260, 380) : 260;
      const shown = methods
        .filter((method, i) => !hidden.has(i) && method[id])
        .map((method) => {
          const { mean, reach } = method[id];
          const points = mean.map((value, epoch) => ({
            epoch, value, x: along(method, epoch), reach: reach && finite(reach[epoch]) ? reach[epoch] : null,
          }));
          const from = zooms && zoomed ? Math.floor(points.length / 2) : 0;
          return { method, points: points.filter(({ value, epoch }) => finite(value) && epoch >= from) };
        })
        .filter(({ points }) => points.length);
      const all = shown.flatMap(({ points }) => points);
      if (!all.length) return null;
      const lows = all.map((p) => p.value - (p.reach ?? 0));
      const highs = all.map((p) => p.value + (p.reach ?? 0));
      const room = (Math.max(...highs) - Math.min(...lows)) * 0.06 || Math.abs(highs[0]) * 0.1 || 1;
      const y = [floor ?? Math.min(...lows) - room, ceiling ?? Math.max(...highs) + room];
      const xs = all.map((p) => p.x);
      const x = [zooms && zoomed ? Math.min(...xs) : start, Math.max(...xs)];
      if (x[0] === x[1]) x[0] -= 1;
      const { px, py, inner } = frame(svg, { width, height, left: 52, right: 18, x, y, xLabel, xForm, yForm });
      const clip = element("clipPath", { id: `clip-${id}` }, svg);
      element("rect", { ...inner, x: inner.x - 4, width: inner.width + 8, y: inner.y - 4, height: inner.height + 4 }, clip);
      const plot = element("g", { "clip-path": `url(#clip-${id})` }, svg);
      const path = (places) => places.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
      for (const { method, points } of shown) {
        const banded = points.filter((p) => p.reach !== null);
        const edge = (sign) => banded.map((p) => [px(p.x), py(p.value + sign * p.reach)]);
        if (banded.length) element("path", { class: `band c${method.colour}`, d: `${path([...edge(1), ...edge(-1).reverse()])}Z` }, plot);
      }
      for (const { method, points } of shown) {
        const d = path(points.map((p) => [px(p.x), py(p.value)]));
        element("path", { class: `curve c${method.colour} dash${method.dash}`, d, "data-method": method.name }, plot);
        const end = points[points.length - 1];
        element("circle", { class: `dot c${method.colour}`, r: 4, cx: px(end.x), cy: py(end.value) }, svg);
      }
      const marks = element("g", {}, svg);
      const at = (epoch) => shown.flatMap(({ method, points }) => points.filter((p) => p.epoch === epoch).map((p) => ({ method, ...p })));
      const epochs = [...new Set(all.map((p) => p.epoch))].sort((a, b) => a - b);
      return {
        nearest: (cx, cy) => {
          const far = (p) => Math.hypot(px(p.x) - cx, 0.3 * (py(p.value) - cy));
          return { epoch: all.reduce((best, p) => (far(p) < far(best) ? p : best)).epoch };
        },
        step: (now, dx) => {
          const i = now ? clamp(epochs.indexOf(now.epoch) + dx, 0, epochs.length - 1) : dx < 0 ? epochs.length - 1 : 0;
          return { epoch: epochs[i] };
        },
        mark: (now) => {
          marks.replaceChildren();
          for (const p of now ? at(now.epoch) : []) {
            element("line", { class: "cursor", x1: px(p.x), x2: px(p.x), y1: py(p.value), y2: inner.y + inner.height }, marks);
            element("circle", { class: `dot c${p.method.colour}`, r: 5.5, cx: px(p.x), cy: py(p.value) }, marks);
          }
        },
        tell: ({ epoch }) => {
          const points = at(epoch);
          const lines = points.map((p) => ({ method: p.method, text: p.method.name, value: form(p) }));
          const places = points.map((p) => px(p.x));
          return { lines: [{ head: true, text: `epoch ${epoch + 1}` }, ...lines], from: Math.min(...places), to: Math.max(...places), y: py(points[0].value) };
        },
      };
    });
  }

  const plusMinus = (p, format) => format(p.value) + (p.reach === null ? "" : ` ± ${format(p.reach)}`);
  const samples = (method, epoch) => method.samples[epoch];
  const overEpochs = { along: (_, epoch) => epoch + 1, start: 1, xLabel: "epoch", xForm: (v) => (Number.isInteger(v) ? String(v) : "") };
  const overSamples = { along: samples, xLabel: "samples trained on", xForm: short };

  curves("value", {
    ...overSamples, zooms: true, yForm: short,
    label: `${data.metric} of each method against the samples trained on, mean over seeds with its 95 % interval.`,
    form: (p) => `${plusMinus(p, (v) => fixed(v, data.digits))} at ${short(p.x)}`,
  });
  curves("loss", {
    ...overSamples, yForm: short, floor: 0,
    label: "Training loss of each method against the samples trained on.",
    form: (p) => plusMinus(p, loss),
  });
  curves("kept", {
    ...overEpochs, yForm: (v) => percent(v, 0), floor: 0, ceiling: 1.02,
    label: "Share of the data that each method trained on, per epoch.",
    form: (p) => plusMinus(p, percent),
  });
  curves("noise", {
    ...overEpochs, yForm: short, floor: 1,
    label: "Noise factor of each method, per epoch. A factor of 1.2: as if batches were 1.2 times smaller.",
    form: (p) => plusMinus(p, (v) => fixed(v, 2)),
  });

  // -- paired differences: a row per method --------------------------------------------------------------------------

  chart("difference", "Paired difference of each method to full data with its 95 % interval, and the margin.", (svg, width) => {
    const rows = methods.filter((method, i) => !hidden.has(i) && method.difference);
    if (!rows.length) return null;
    const [top, row] = [26, 58];
    const height = top + rows.length * row + 40;
    const ends = rows.flatMap(({ difference: d }) => [...d.values, ...(d.reach === null ? [] : [d.mean - d.reach, d.mean + d.reach])]);
    const reach = Math.max(...ends.map(Math.abs), data.margin * 1.3, 1e-9) * 1.08;
    const low = Math.min(...ends, -data.margin * 1.3);
    const x = [Math.min(low * 1.08, -0.15 * reach), Math.max(...ends, data.margin * 0.4, 0.15 * reach) * 1.08];
    const { px, inner } = frame(svg, {
      width, height, left: 22, right: 22, top, x, y: [0, 1], yTicks: [], xForm: (v) => (v > 0 ? "+" : "") + short(v), yForm: short,
      xLabel: `← worse · ${data.metric} · better →`,
    });
    const floor = inner.y + inner.height;
    const edge = px(-data.margin);
    element("rect", { class: "lossless", x: edge, y: inner.y, width: inner.x + inner.width - edge, height: inner.height }, svg);
    element("line", { class: "axis", x1: inner.x, x2: inner.x + inner.width, y1: floor, y2: floor }, svg);
    element("line", { class: "zero", x1: px(0), x2: px(0), y1: inner.y - 4, y2: floor }, svg);
    element("text", { x: px(0) + 5, y: inner.y - 9 }, svg, "full data");
    if (data.margin > 0) {
      element("line", { class: "margin", x1: edge, x2: edge, y1: inner.y - 4, y2: floor }, svg);
      const near = px(0) - edge < 90;
      element("text", { x: near ? edge - 5 : edge + 5, y: inner.y - 9, "text-anchor": near ? "end" : "start" }, svg, `margin −${data.margin}`);
    }
    const middles = rows.map((method, i) => {
      const { values, mean, reach: half } = method.difference;
      const [middle, group] = [inner.y + i * row + 38, element("g", { class: `c${method.colour}`, "data-method": method.name }, svg)];
      element("text", { class: "name", x: inner.x + 4, y: inner.y + i * row + 20 }, group, method.name);
      if (half !== null) {
        element("line", { class: "whisker", x1: px(mean - half), x2: px(mean + half), y1: middle, y2: middle }, group);
      }
      for (const value of values) element("circle", { class: "seed", cx: px(value), cy: middle, r: 3.5 }, group);
      element("circle", { class: "dot", cx: px(mean), cy: middle, r: 6.5 }, group);
      return middle;
    });
    const marks = element("g", {}, svg);
    return {
      nearest: (_, cy) => ({ i: clamp(Math.floor((cy - inner.y) / row), 0, rows.length - 1) }),
      step: (now, dx, dy) => ({ i: now ? clamp(now.i + dx - dy, 0, rows.length - 1) : 0 }),
      mark: (now) => {
        marks.replaceChildren();
        if (now) element("rect", { class: "frame", x: inner.x, y: inner.y + now.i * row + 3, width: inner.width, height: row - 6, rx: 6 }, marks);
      },
      tell: ({ i }) => {
        const { difference: d } = rows[i];
        const interval = d.reach === null ? "one seed: no interval" : `95 %: ${signed(d.mean - d.reach)} to ${signed(d.mean + d.reach)}`;
        const seeds = d.values.map((value, k) => ({ text: `seed ${d.seeds[k]}`, value: signed(value) }));
        const lines = [{ method: rows[i], text: rows[i].name, value: signed(d.mean) }, { head: true, text: interval }, ...seeds];
        const ends = [...d.values, d.mean - d.reach, d.mean + d.reach].map(px);
        return { lines, from: Math.min(...ends), to: Math.max(...ends), y: middles[i] };
      },
    };
  });

  // -- scores: how they are distributed in each epoch ----------------------------------------------------------------

  chart("scores", "Distribution of the scores over the epochs, for the method picked above.", (svg, width) => {
    const { colour, scores } = methods.find((method) => method.number === picked);
    if (!scores) return null;
    const filled = scores.flatMap((shares) => shares.flatMap((share, bin) => (share > 0 ? [bin] : [])));
    const [low, high] = [Math.min(...filled), Math.max(...filled) + 1];
    const [epochs, height, edges] = [scores.length, 320, data.edges];
    const most = Math.max(...scores.flat());
    const powers = edges.map((edge, bin) => [Math.log10(edge), bin]).filter(([p, bin]) => bin >= low && bin <= high && Math.abs(p - Math.round(p)) < 1e-6);
    const { px, py, inner } = frame(svg, {
      width, height, left: 52, x: [0.5, epochs + 0.5], y: [low, high], xLabel: `epoch (full colour: ${percent(most)} of the samples)`,
      xForm: (v) => (Number.isInteger(v) ? String(v) : ""), yTicks: powers.map(([, bin]) => bin),
      yForm: (bin) => `10${superscript(Math.round(Math.log10(edges[bin])))}`,
    });
    const cells = element("g", { class: `c${colour}` }, svg);
    const box = (epoch, bin) => ({ x: px(epoch + 0.5), y: py(bin + 1), width: px(1) - px(0), height: py(0) - py(1) });
    scores.forEach((shares, epoch) => shares.forEach((share, bin) => {
      if (share > 0) element("rect", { class: "cell", ...box(epoch, bin), "fill-opacity": Math.sqrt(share / most).toFixed(3) }, cells);
    }));
    const marks = element("g", {}, svg);
    const number = (value) => +value.toPrecision(2);
    return {
      nearest: (cx, cy) => ({
        epoch: clamp(Math.floor((cx - inner.x) / (inner.width / epochs)), 0, epochs - 1),
        bin: clamp(high - 1 - Math.floor((cy - inner.y) / (inner.height / (high - low))), low, high - 1),
      }),
      step: (now, dx, dy) => (now
        ? { epoch: clamp(now.epoch + dx, 0, epochs - 1), bin: clamp(now.bin + dy, low, high - 1) }
        : { epoch: 0, bin: scores[0].indexOf(Math.max(...scores[0])) }),
      mark: (now) => {
        marks.replaceChildren();
        if (now) element("rect", { class: "frame", ...box(now.epoch, now.bin) }, marks);
      },
      tell: ({ epoch, bin }) => {
        const [from, to] = [number(edges[bin]), number(edges[bin + 1])];
        const range = bin === 0 ? `below ${to}` : bin === edges.length - 2 ? `above ${from}` : `${from} to ${to}`;
        const { x, y, width } = box(epoch, bin);
        const lines = [{ head: true, text: `epoch ${epoch + 1}` }, { text: `score ${range}`, value: percent(scores[epoch][bin], 2) }];
        return { lines, from: x, to: x + width, y };
      },
    };
  });

  // -- switches: legend, zoom and method -----------------------------------------------------------------------------

  function button(parent, method, pressed, act) {
    const node = html("button", "", parent);
    node.type = "button";
    key(method, node);
    node.append(method.name);
    node.setAttribute("aria-pressed", pressed);
    node.addEventListener("click", () => act(node));
    return node;
  }

  const legend = document.querySelector(".legend");
  methods.forEach((method, i) => button(legend, method, true, (node) => {
    if (!hidden.delete(i)) hidden.add(i);
    node.setAttribute("aria-pressed", !hidden.has(i));
    redrawAll();
  }));

  const zoom = document.querySelector(".zoom");
  zoom.addEventListener("click", () => {
    zoomed = !zoomed;
    zoom.setAttribute("aria-pressed", zoomed);
    redrawAll();
  });

  function pick(number) {
    picked = number;
    const matches = (value) => value === String(number);
    document.querySelectorAll(".picker button").forEach((node) => node.setAttribute("aria-pressed", matches(node.dataset.method)));
    document.querySelectorAll("[data-samples]").forEach((part) => (part.hidden = !matches(part.dataset.samples)));
  }

  const picker = document.querySelector(".picker");
  if (picker) {
    for (const method of methods.filter(({ inside }) => inside)) {
      button(picker, method, false, () => { pick(method.number); redrawAll(); }).dataset.method = method.number;
    }
    pick(picked);
  }
})();
