// The sample explorer: unpacks the numbers that the page carries, draws the map and the lists, and exports a selection.
"use strict";
(async () => {
  const { chart, clamp, element, frame, html, minus, percent, superscript, whole } = kit;
  const data = JSON.parse(document.getElementById("data").textContent);
  const by = (id) => document.getElementById(id);
  const columns = await unpack();
  const STEPS = 4094; // between the least and the largest value of a column
  const selected = new Uint8Array(data.size);
  let count = 0; // how many samples are selected
  let list = data.lists[0];
  let label = -1;
  let picked = -1;
  let listed = [];

  async function unpack() {
    const bytes = decode(by("block").textContent);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const all = new Uint8Array(await new Response(stream).arrayBuffer());
    const unpacked = {};
    for (const { name, at, count: length, bytes: width } of data.layout) {
      if (width === 1) { unpacked[name] = all.subarray(at, at + length); continue; }
      const values = width === 2 ? new Uint16Array(length) : new Uint32Array(length);
      const [second, third, fourth] = [at + length, at + 2 * length, at + 3 * length];
      if (width === 2) for (let i = 0; i < length; i++) values[i] = all[at + i] | (all[second + i] << 8);
      else for (let i = 0; i < length; i++) values[i] = all[at + i] | (all[second + i] << 8) | (all[third + i] << 16) | (all[fourth + i] << 24);
      unpacked[name] = values;
    }
    return unpacked;
  }

  function decode(text) {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text); // faster, in newer browsers
    const letters = atob(text);
    const bytes = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
    return bytes;
  }

  // -- numbers -------------------------------------------------------------------------------------------------------

  const value = (name, i) => back(name, columns[name][i]);
  function back(name, step) {
    if (!step) return null;
    const { low, high, scale, steps } = data.about[name];
    return scale * Math.sinh(low + ((high - low) * (step - 1)) / steps);
  }
  function place(name, number) { // where a value lies on the axis of a column, from 0 to 1
    const { low, high, scale } = data.about[name];
    return (Math.asinh(number / scale) - low) / (high - low || 1);
  }
  const format = (number) => (number === null ? "not known" : Math.abs(number) < 1e-6 ? "0" : minus(String(+number.toPrecision(3))));
  const power = (number) => {
    if (number === 0) return "0";
    const p = Math.log10(Math.abs(number));
    const sign = number < 0 ? "−" : "";
    return p >= -2.01 && p <= 3.01 ? minus(String(+number.toPrecision(2))) : `${sign}10${superscript(Math.round(p))}`;
  };
  // Round values that stand at least `apart` from each other, as [value, place] pairs.
  function roundTicks(low, high, at, apart) {
    const sizes = [];
    for (let p = -6; p <= 6; p++) for (const k of [1, 2, 5]) sizes.push(k * 10 ** p);
    const candidates = [0, ...sizes.map((s) => s), ...sizes.map((s) => -s)].filter((v) => v >= low - 1e-9 && v <= high + 1e-9);
    const weight = (v) => (v === 0 ? 0 : /^1(e|0*$)/.test(String(Math.abs(v)).replace(/^0\.0*/, "")) ? 1 : 2);
    candidates.sort((a, b) => weight(a) - weight(b) || Math.abs(b) - Math.abs(a));
    const kept = [];
    for (const v of candidates) {
      const where = at(v);
      if (kept.every(([, other]) => Math.abs(other - where) >= apart)) kept.push([v, where]);
    }
    return kept;
  }
  // The share of samples that are at least as suspected as this one, as text.
  function describeSuspicion(i) {
    const share = 100 * Math.exp((1 - columns.suspicion[i]) / data.tail);
    return columns.suspicion[i] ? `top ${share >= 10 ? Math.round(share) : +share.toPrecision(2)} %` : "not known";
  }
  const hasLabel = (i) => label < 0 || columns.label[i] === label;

  // The first samples of a list, and how many it has in all.
  function members(wanted, most) {
    const [keys, flags] = [columns[wanted.column], columns.flags];
    const fits = (i) => keys[i] > 0 && (!wanted.flags || (flags[i] & wanted.flags) === wanted.flags) && hasLabel(i);
    const tally = new Uint32Array(65536);
    let total = 0;
    for (let i = 0; i < data.size; i++) if (fits(i)) { tally[Math.min(keys[i], 65535)]++; total++; }
    let [cut, reached] = wanted.highest ? [65535, 0] : [0, 0];
    const step = wanted.highest ? -1 : 1;
    while (cut >= 0 && cut < 65536 && (reached += tally[cut]) < most) cut += step;
    const rows = [];
    for (let i = 0; i < data.size; i++) if (fits(i) && (wanted.highest ? keys[i] >= cut : keys[i] <= cut)) rows.push(i);
    rows.sort((a, b) => (wanted.highest ? keys[b] - keys[a] : keys[a] - keys[b]) || a - b);
    return { rows: rows.slice(0, most), total };
  }

  // -- the map: density where there are many samples, a dot for each where there are few -----------------------------

  const [base, over] = document.querySelectorAll("#map canvas");
  const map = columns.mean ? { cell: 3, few: 3 } : null;
  let cross = null;
  let drag = null;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  function fit(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1;
    [canvas.width, canvas.height] = [width * ratio, height * ratio];
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    return pen;
  }

  function drawMap() {
    if (!map) return;
    const width = by("map").clientWidth;
    const height = Math.round(innerWidth > 720 ? clamp(width * 0.86, 440, 540) : clamp(width * 0.86, 300, 440));
    const inner = { x: 46, y: 8, width: width - 46 - 12, height: height - 8 - 44 };
    Object.assign(map, { width, height, inner });
    map.px = (i) => inner.x + ((columns.variability[i] - 1) / STEPS) * inner.width;
    map.py = (i) => inner.y + (1 - (columns.mean[i] - 1) / STEPS) * inner.height;
    const pen = fit(base, width, height);
    axes(pen);
    const [across, down] = [Math.ceil(inner.width / map.cell) + 1, Math.ceil(inner.height / map.cell) + 1];
    const counts = new Uint32Array(across * down);
    const where = new Int32Array(data.size); // the cell of each sample; -1: not on the map
    let [most, many] = [1, 0];
    for (let i = 0; i < data.size; i++) {
      if (!columns.mean[i] || !hasLabel(i)) { where[i] = -1; continue; }
      where[i] = Math.floor((map.px(i) - inner.x) / map.cell) + across * Math.floor((map.py(i) - inner.y) / map.cell);
      most = Math.max(most, ++counts[where[i]]);
      many++;
    }
    pen.fillStyle = colour("c1");
    for (let cell = 0; cell < counts.length; cell++) {
      if (counts[cell] <= map.few) continue;
      pen.globalAlpha = 0.22 + 0.78 * (Math.log(counts[cell]) / Math.log(Math.max(most, 2)));
      pen.fillRect(inner.x + (cell % across) * map.cell, inner.y + Math.floor(cell / across) * map.cell, map.cell, map.cell);
    }
    const dot = many < 3000 ? 3 : many < 50000 ? 2.4 : 1.6;
    pen.globalAlpha = many < 3000 ? 0.6 : 0.45;
    for (let i = 0; i < data.size; i++) {
      if (where[i] >= 0 && counts[where[i]] <= map.few) pen.fillRect(map.px(i) - dot / 2, map.py(i) - dot / 2, dot, dot);
    }
    pen.globalAlpha = 1;
    drawMarks();
  }

  function axes(pen) {
    const { inner, width, height } = map;
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = colour("soft");
    pen.strokeStyle = colour("line");
    const along = { mean: (v) => inner.y + (1 - place("mean", v)) * inner.height, variability: (v) => inner.x + place("variability", v) * inner.width };
    const range = (name) => [back(name, 1), back(name, STEPS + 1)];
    pen.textAlign = "right";
    for (const [v, y] of roundTicks(...range("mean"), along.mean, 26)) {
      pen.beginPath(); pen.moveTo(inner.x, y); pen.lineTo(width - 12, y); pen.stroke();
      pen.fillText(power(v), inner.x - 6, y + 4);
    }
    pen.textAlign = "center";
    for (const [v, x] of roundTicks(...range("variability"), along.variability, 44)) pen.fillText(power(v), clamp(x, inner.x + 6, width - 22), height - 26);
    pen.fillText("variability: standard deviation over the epochs", inner.x + inner.width / 2, height - 6, inner.width);
    pen.save(); pen.translate(11, inner.y + inner.height / 2); pen.rotate(-Math.PI / 2); pen.fillText("mean score", 0, 0); pen.restore();
  }

  function drawMarks() {
    if (!map) return;
    const pen = fit(over, map.width, map.height);
    const dots = (rows, name, radius) => {
      pen.fillStyle = colour(name); pen.strokeStyle = colour("card");
      for (const i of rows) if (columns.mean[i]) { pen.beginPath(); pen.arc(map.px(i), map.py(i), radius, 0, 7); pen.fill(); pen.stroke(); }
    };
    if (count && count <= 20000) dots(selectedRows(), "c3", 2.5);
    dots(listed, "c2", 3.5);
    if (picked >= 0 && columns.mean[picked]) {
      pen.strokeStyle = colour("ink"); pen.lineWidth = 2;
      pen.beginPath(); pen.arc(map.px(picked), map.py(picked), 7, 0, 7); pen.stroke();
    }
    pen.strokeStyle = colour("ink"); pen.lineWidth = 1;
    if (cross) {
      pen.beginPath(); pen.moveTo(cross.x - 9, cross.y); pen.lineTo(cross.x + 9, cross.y); pen.moveTo(cross.x, cross.y - 9); pen.lineTo(cross.x, cross.y + 9); pen.stroke();
    }
    if (drag?.far) pen.strokeRect(drag.x, drag.y, drag.to.x - drag.x, drag.to.y - drag.y);
  }

  function nearest(x, y) {
    let [best, least] = [-1, Infinity];
    for (let i = 0; i < data.size; i++) {
      if (!columns.mean[i] || !hasLabel(i)) continue;
      const far = (map.px(i) - x) ** 2 + (map.py(i) - y) ** 2;
      if (far < least) [best, least] = [i, far];
    }
    return best;
  }

  function selectWithin({ x, y, to }) {
    const [x0, x1, y0, y1] = [Math.min(x, to.x), Math.max(x, to.x), Math.min(y, to.y), Math.max(y, to.y)];
    for (let i = 0; i < data.size; i++) {
      if (!columns.mean[i] || !hasLabel(i)) continue;
      const [px, py] = [map.px(i), map.py(i)];
      if (px >= x0 && px <= x1 && py >= y0 && py <= y1) select(i, true);
    }
    tellSelected();
  }

  if (map) {
    document.querySelector(".map").hidden = false;
    const at = (event) => { const box = over.getBoundingClientRect(); return { x: event.clientX - box.left, y: event.clientY - box.top }; };
    over.addEventListener("pointerdown", (event) => { drag = { ...at(event), to: at(event), far: false, mouse: event.pointerType === "mouse" }; });
    over.addEventListener("pointermove", (event) => {
      if (!drag?.mouse) return;
      drag.to = at(event);
      drag.far ||= Math.hypot(drag.to.x - drag.x, drag.to.y - drag.y) > 6;
      drawMarks();
    });
    over.addEventListener("pointerup", () => {
      const done = drag;
      drag = null;
      if (done?.far) selectWithin(done);
      else if (done) pick(nearest(done.x, done.y));
    });
    for (const name of ["pointerleave", "pointercancel"]) over.addEventListener(name, () => { drag = null; drawMarks(); });
    over.addEventListener("blur", () => { cross = null; drawMarks(); });
    over.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      const { inner } = map;
      const from = cross ?? (picked >= 0 && columns.mean[picked] ? { x: map.px(picked), y: map.py(picked) } : { x: inner.x, y: inner.y });
      if (event.key in moves) {
        const [dx, dy] = moves[event.key].map((d) => d * (event.shiftKey ? 40 : 10));
        cross = { x: clamp(from.x + dx, inner.x, inner.x + inner.width), y: clamp(from.y + dy, inner.y, inner.y + inner.height) };
      } else if (event.key === "Enter" || event.key === " ") pick(nearest(from.x, from.y));
      else if (event.key === "Escape") cross = null;
      else return;
      event.preventDefault();
      drawMarks();
    });
  }

  // -- one sample ----------------------------------------------------------------------------------------------------

  function followedRow(index) { // the row of a sample among those whose scores by epoch are on the page; they are sorted
    const rows = columns.followed;
    if (!rows) return index;
    let [low, high] = [0, rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows[middle] < index) low = middle + 1;
      else high = middle;
    }
    return rows[low] === index ? low : undefined;
  }
  const followedCount = columns.codes ? columns.codes.length / data.known.length : 0;
  function trajectory(index) { // a sample's score by epoch; null: left out of the epoch; undefined: not on this page
    if (!columns.codes || index < 0) return undefined;
    const row = followedRow(index);
    if (row === undefined) return undefined;
    return data.known.map((_, k) => {
      const code = columns.codes[k * followedCount + row];
      return code > 1 ? data.values[data.kind[k]][code] : null;
    });
  }

  const drawTrajectory = chart("trajectory", "Score of this sample over the epochs.", (svg, width) => {
    const scores = trajectory(picked);
    const points = (scores ?? []).flatMap((score, k) => (score === null ? [] : [{ epoch: data.known[k] + 1, score }]));
    if (!points.length) { svg.setAttribute("height", 0); return { nearest: () => null, step: () => null, mark: () => {} }; }
    const scale = data.about.mean.scale;
    const bend = (v) => Math.asinh(v / scale);
    const all = [...points.map((p) => p.score), 0];
    all.push(...data.thresholds);
    const y = [bend(Math.min(...all)), bend(Math.max(...all)) * 1.06 || 1];
    const epochs = data.known.map((e) => e + 1);
    const x = [epochs[0] - 0.5, epochs[epochs.length - 1] + 0.5];
    const height = 190;
    const at = (v) => height - 40 - ((bend(v) - y[0]) / (y[1] - y[0])) * (height - 50);
    const ticks = roundTicks(Math.min(...all), Math.max(...all), at, 24).map(([v]) => v);
    const { px, py, inner } = frame(svg, {
      width, height, left: 40, bottom: 40, x, y, xLabel: "epoch", xForm: (v) => (Number.isInteger(v) ? String(v) : ""),
      xTicks: [...new Set([epochs[0], Math.round((epochs[0] + epochs[epochs.length - 1]) / 2), epochs[epochs.length - 1]])],
      yTicks: ticks.map(bend), yForm: (b) => power(+(scale * Math.sinh(b)).toPrecision(6)),
    });
    const steps = (rows) => rows.map(([e, v], i) => `${i ? "L" : "M"}${px(e).toFixed(1)} ${py(bend(v)).toFixed(1)}`).join("");
    element("path", { class: "level", d: steps(data.thresholds.map((v, k) => [epochs[k], v])) }, svg);
    scores.forEach((score, k) => {
      if (score === null) element("line", { class: "absent", x1: px(epochs[k]) - 3, x2: px(epochs[k]) + 3, y1: inner.y + inner.height, y2: inner.y + inner.height }, svg);
    });
    element("path", { class: "curve c1", d: steps(points.map((p) => [p.epoch, p.score])) }, svg);
    for (const p of points) element("circle", { class: "dot c1", r: 3.5, cx: px(p.epoch), cy: py(bend(p.score)) }, svg);
    const marks = element("g", {}, svg);
    return {
      nearest: (cx) => ({ k: clamp(Math.round(((cx - inner.x) / inner.width) * epochs.length - 0.5), 0, epochs.length - 1) }),
      step: (now, dx) => ({ k: now ? clamp(now.k + dx, 0, epochs.length - 1) : 0 }),
      mark: (now) => {
        marks.replaceChildren();
        if (now) element("line", { class: "cursor", x1: px(epochs[now.k]), x2: px(epochs[now.k]), y1: inner.y, y2: inner.y + inner.height }, marks);
      },
      tell: ({ k }) => ({
        lines: [{ head: true, text: `epoch ${epochs[k]}` }, { text: scores[k] === null ? "left out" : "score", value: scores[k] === null ? "" : format(scores[k]) }],
        from: px(epochs[k]), to: px(epochs[k]), y: inner.y + 30,
      }),
    };
  });

  function facts(i) {
    const rows = [];
    if (columns.label) rows.push(["label", data.labels[columns.label[i]]]);
    rows.push(["last score", format(value("score", i))]);
    if (columns.mean) {
      rows.push(["mean score", format(value("mean", i))], ["variability", format(value("variability", i))]);
      rows.push(["suspicion", describeSuspicion(i)]);
      rows.push(["trained", `${columns.times_trained[i]} of ${data.known.length} epochs`], ["forgotten", `${columns.forgetting_events[i]} ×`]);
    }
    return rows;
  }

  function pick(index, scroll = false) {
    if (index < 0) return;
    picked = index;
    by("name").textContent = `Sample ${index}`;
    by("exhibit").innerHTML = data.exhibits[index] ?? "";
    const body = by("facts").tBodies[0];
    body.replaceChildren();
    for (const [name, text] of facts(index)) {
      const row = html("tr", "", body);
      html("th", "", row, name).scope = "row";
      html("td", "", row, text);
    }
    by("dashed").hidden = trajectory(index) === undefined;
    by("unfollowed").hidden = !columns.codes || trajectory(index) !== undefined;
    drawTrajectory();
    drawMarks();
    document.querySelectorAll("#list li").forEach((item) => item.classList.toggle("picked", +item.dataset.index === index));
    if (scroll && innerWidth <= 720) document.querySelector(".detail").scrollIntoView({ block: "nearest" });
  }

  // -- lists, labels, search -----------------------------------------------------------------------------------------

  function note(i) {
    if (list.column === "forgetting_events") return `forgotten ${columns.forgetting_events[i]} ×`;
    if (list.column === "suspicion") return describeSuspicion(i);
    return `${{ mean: "mean", variability: "changed by", score: "score" }[list.column]} ${format(value(list.column, i))}`;
  }

  function showList() {
    const { rows, total } = members(list, data.listed);
    listed = rows;
    document.querySelectorAll(".picker button").forEach((node) => node.setAttribute("aria-pressed", node.dataset.list === list.key));
    by("about").textContent = `${list.name}: ${list.about}. ${total > rows.length ? `The first ${rows.length} of ${whole(total)}.` : total ? `All ${total}.` : "None."}`;
    by("first").max = Math.max(total, 1);
    by("first").value = Math.max(rows.length, 1);
    const place = by("list");
    place.replaceChildren();
    for (const i of rows) {
      const item = html("li", i === picked ? "picked" : "", place);
      item.dataset.index = i;
      const button = html("button", "", item);
      button.type = "button";
      button.addEventListener("click", () => pick(i, true));
      look(i, button);
      const text = html("p", "", button, `sample ${i}`);
      if (columns.label) html("span", "", text, data.labels[columns.label[i]]);
      html("span", "", text, note(i));
      const box = html("label", "", item);
      const tick = html("input", "", box);
      tick.type = "checkbox";
      tick.checked = selected[i] === 1;
      tick.setAttribute("aria-label", `select sample ${i}`);
      box.append("select");
      tick.addEventListener("change", () => { select(i, tick.checked); tellSelected(); });
    }
    drawMarks();
  }

  function look(i, parent) { // a picture, or the first words
    const shown = data.exhibits[i];
    if (!shown) return;
    const content = document.createElement("template");
    content.innerHTML = shown;
    const picture = content.content.querySelector("img");
    const place = html("div", "look", parent);
    if (picture) { picture.loading = "lazy"; place.append(picture); }
    else html("p", "words", place, content.content.textContent.trim().slice(0, 160) || (content.content.querySelector("audio") ? "♪ sound" : ""));
  }

  for (const entry of data.lists) {
    const node = html("button", "", document.querySelector(".picker"), entry.name);
    node.type = "button";
    node.dataset.list = entry.key;
    node.addEventListener("click", () => { list = entry; showList(); if (listed.length) pick(listed[0]); });
  }

  if (columns.label) {
    document.querySelector(".by-label").hidden = false;
    const counts = new Uint32Array(data.labels.length);
    for (let i = 0; i < data.size; i++) counts[columns.label[i]]++;
    data.labels.forEach((name, code) => { html("option", "", by("label"), `${name} (${whole(counts[code])})`).value = code; });
    by("label").addEventListener("change", () => { label = +by("label").value; drawMap(); showList(); if (listed.length) pick(listed[0]); });
  }

  by("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = by("index").value.trim();
    const index = Number(text);
    const right = text !== "" && Number.isInteger(index) && index >= 0 && index < data.size;
    by("message").textContent = right ? "" : `Give a number from 0 to ${whole(data.size - 1)}.`;
    if (right) pick(index, true);
  });

  // -- the selection -------------------------------------------------------------------------------------------------

  function select(i, on) {
    if (selected[i] === +on) return;
    selected[i] = +on;
    count += on ? 1 : -1;
  }
  function selectedRows() {
    const rows = [];
    for (let i = 0; i < data.size; i++) if (selected[i]) rows.push(i);
    return rows;
  }
  function tellSelected() {
    by("selected").textContent = count ? `${whole(count)} selected` : "nothing selected";
    for (const id of ["csv", "json", "clear"]) by(id).disabled = !count;
    document.querySelectorAll("#list li").forEach((item) => { item.querySelector("input").checked = selected[+item.dataset.index] === 1; });
    drawMarks();
  }
  function save(name, kind, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: kind }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  by("select").addEventListener("submit", (event) => {
    event.preventDefault();
    for (const i of members(list, Math.max(1, Math.floor(+by("first").value) || 1)).rows) select(i, true);
    tellSelected();
  });
  by("clear").addEventListener("click", () => { selected.fill(0); count = 0; tellSelected(); });
  by("csv").addEventListener("click", () => save("indices.csv", "text/csv", `index\n${selectedRows().join("\n")}\n`));
  by("json").addEventListener("click", () => save("indices.json", "application/json", JSON.stringify(selectedRows())));

  // -- epochs --------------------------------------------------------------------------------------------------------

  function overEpochs(id, name, label, form, floor, ceiling) {
    const points = data.epochs.filter((row) => row[name] !== null).map((row) => ({ epoch: row.epoch + 1, y: name === "kept" ? row.kept / row.total : row[name] }));
    chart(id, label, (svg, width) => {
      if (!points.length) return null;
      const xs = points.map((p) => p.epoch);
      const x = [Math.min(...xs), Math.max(...xs)];
      if (x[0] === x[1]) x[0] -= 1;
      const most = ceiling ?? Math.max(...points.map((p) => p.y), floor + 0.1) + 0.02;
      const { px, py, inner } = frame(svg, { width, height: 220, left: 52, right: 18, x, y: [floor, most], xLabel: "epoch", xForm: (v) => (Number.isInteger(v) ? String(v) : ""), yForm: form });
      element("path", { class: "curve c1", d: points.map((p, i) => `${i ? "L" : "M"}${px(p.epoch).toFixed(1)} ${py(p.y).toFixed(1)}`).join("") }, svg);
      if (points.length < 3) for (const p of points) element("circle", { class: "dot c1", r: 4, cx: px(p.epoch), cy: py(p.y) }, svg);
      const marks = element("g", {}, svg);
      return {
        nearest: (cx) => ({ i: points.reduce((best, p, i) => (Math.abs(px(p.epoch) - cx) < Math.abs(px(points[best].epoch) - cx) ? i : best), 0) }),
        step: (now, dx) => ({ i: now ? clamp(now.i + dx, 0, points.length - 1) : dx < 0 ? points.length - 1 : 0 }),
        mark: (now) => {
          marks.replaceChildren();
          if (!now) return;
          const p = points[now.i];
          element("line", { class: "cursor", x1: px(p.epoch), x2: px(p.epoch), y1: py(p.y), y2: inner.y + inner.height }, marks);
          element("circle", { class: "dot c1", r: 5.5, cx: px(p.epoch), cy: py(p.y) }, marks);
        },
        tell: ({ i }) => ({ lines: [{ text: `epoch ${points[i].epoch}`, value: form(points[i].y) }], from: px(points[i].epoch), to: px(points[i].epoch), y: py(points[i].y) }),
      };
    });
  }

  function scores() {
    const { epochs, shares, ticks, edges } = data.distribution;
    chart("scores", "Distribution of the scores over the epochs.", (svg, width) => {
      if (!shares.length) return null;
      const [columnsOf, bins, height] = [shares.length, edges.length - 1, 300];
      const most = Math.max(...shares.flat());
      const { px, py, inner } = frame(svg, {
        width, height, left: 52, x: [0.5, columnsOf + 0.5], y: [0, bins], xLabel: `epoch (full colour: ${percent(most)} of the samples)`,
        xForm: (v) => (Number.isInteger(v) && epochs[v - 1] !== undefined ? String(epochs[v - 1] + 1) : ""),
        yTicks: ticks.map(([at]) => at), yForm: (at) => power((ticks.find(([other]) => other === at) ?? [0, 0])[1]),
      });
      const cells = element("g", { class: "c1" }, svg);
      const box = (k, bin) => ({ x: px(k + 0.5), y: py(bin + 1), width: px(1) - px(0), height: py(0) - py(1) });
      shares.forEach((row, k) => row.forEach((share, bin) => {
        if (share > 0) element("rect", { class: "cell", ...box(k, bin), "fill-opacity": Math.sqrt(share / most).toFixed(3) }, cells);
      }));
      const marks = element("g", {}, svg);
      return {
        nearest: (cx, cy) => ({ k: clamp(Math.floor((cx - inner.x) / (inner.width / columnsOf)), 0, columnsOf - 1), bin: clamp(bins - 1 - Math.floor((cy - inner.y) / (inner.height / bins)), 0, bins - 1) }),
        step: (now, dx, dy) => (now ? { k: clamp(now.k + dx, 0, columnsOf - 1), bin: clamp(now.bin + dy, 0, bins - 1) } : { k: 0, bin: shares[0].indexOf(Math.max(...shares[0])) }),
        mark: (now) => { marks.replaceChildren(); if (now) element("rect", { class: "frame", ...box(now.k, now.bin) }, marks); },
        tell: ({ k, bin }) => {
          const { x, y, width: wide } = box(k, bin);
          return { lines: [{ head: true, text: `epoch ${epochs[k] + 1}` }, { text: `score ${format(edges[bin])} to ${format(edges[bin + 1])}`, value: percent(shares[k][bin], 2) }], from: x, to: x + wide, y };
        },
      };
    });
  }

  // -- start ---------------------------------------------------------------------------------------------------------

  document.querySelectorAll("[data-drawn]").forEach((part) => (part.hidden = false));
  overEpochs("kept", "kept", "Share of the data trained on, per epoch.", (v) => percent(v, 0), 0, 1);
  overEpochs("noise", "noise", "Noise factor per epoch.", (v) => v.toFixed(2), 1, null);
  scores();
  drawMap();
  showList();
  tellSelected();
  if (listed.length) pick(listed[0]);
  if (map) {
    new ResizeObserver(() => { if (by("map").clientWidth !== map.width) requestAnimationFrame(drawMap); }).observe(by("map"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawMap);
  }
  document.documentElement.dataset.ready = "yes";
  performance.mark("ready");
})();
