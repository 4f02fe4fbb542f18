// Pictures as SVG: functions of their data alone.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 1000;

/** An SVG element with attributes and children. */
function draw(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function picture(height, label, children) {
  return draw("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label },
    ...children);
}

function title(text) {
  return draw("title", {}, text);
}

/** The same job has the same colour wherever it is drawn. */
export function colourOf(id) {
  let hash = 0;
  for (const letter of id) hash = (hash * 31 + letter.codePointAt(0)) % 9973;
  return `hsl(${(hash * 137) % 360} 55% 52%)`;
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = Number(count || 0), unit = 0;
  while (value >= 1024 && unit + 1 < units.length) { value /= 1024; unit += 1; }
  return `${unit === 0 ? value : value.toFixed(value < 10 ? 2 : 1)} ${units[unit]}`;
}

/** A device's memory: what is promised to each job, what all share; a line where each has been. */
export function deviceBar(device) {
  const capacity = Number(device.capacity_bytes || 0) || 1;
  const scale = WIDTH / capacity;
  const parts = [draw("rect", { class: "track", width: WIDTH, height: 26, rx: 3 })];
  let left = 0;
  for (const weights of device.shared_weights || []) {
    const width = Number(weights.bytes) * scale;
    parts.push(draw("rect", { class: "shared", x: left, width, height: 26 },
      title(`weights that ${weights.jobs} jobs share: ${bytes(weights.bytes)}`)));
    left += width;
  }
  for (const promise of device.reservations || []) {
    const width = Number(promise.reserved_bytes || 0) * scale;
    const own = Math.max(0, Number(promise.counted_bytes || 0) - Number(promise.shared_bytes || 0));
    const name = promise.job || "a job of somebody else";
    parts.push(draw("rect",
      { x: left, width, height: 26, fill: colourOf(promise.job_name || name), stroke: "var(--paper)" },
      title(`${name}: ${bytes(promise.reserved_bytes)} reserved, ` +
        `${bytes(promise.predicted_bytes)} predicted, ${bytes(promise.counted_bytes)} counted`)));
    const at = left + Math.min(width, own * scale);
    parts.push(draw("path", { class: "measured", d: `M${at} 0V26` }));
    if (width > 90)
      parts.push(draw("text", { x: left + 6, y: 17 }, name.slice(0, Math.floor(width / 7))));
    left += width;
  }
  return picture(26, `memory of ${device.name}`, parts);
}

const LANE = 46;

/** Which jobs a device held when; as high as their share of its capacity. */
export function timeline(devices, jobs, now) {
  const placed = jobs.filter((job) => job.device && job.start_time);
  if (placed.length === 0) return null;
  const times = placed.map((job) => Date.parse(job.start_time));
  const begin = Math.max(Math.min(...times), now - 24 * 3600e3);
  const span = Math.max(now - begin, 60e3);
  const x = (time) => 90 + (WIDTH - 90) * Math.min(1, Math.max(0, (time - begin) / span));
  const parts = [];
  devices.forEach((device, lane) => {
    const top = lane * (LANE + 8), capacity = Number(device.capacity_bytes || 0) || 1;
    parts.push(draw("text", { x: 0, y: top + LANE / 2 + 4 }, device.name));
    parts.push(draw("rect", { class: "track", x: 90, y: top, width: WIDTH - 90, height: LANE }));
    const ends = [];  // Of what is drawn: [time it ends, height].
    for (const job of placed.filter((each) => each.device === device.name)
      .sort((a, b) => Date.parse(a.start_time) - Date.parse(b.start_time))) {
      const start = Date.parse(job.start_time);
      const end = job.end_time ? Date.parse(job.end_time) : now;
      if (end < begin) continue;
      const memory = job.memory || {};
      const share = Number(memory.reserved_bytes || memory.budget_bytes || 0) / capacity;
      const height = Math.max(2, Math.min(1, share) * LANE);
      for (let i = ends.length - 1; i >= 0; i -= 1) if (ends[i][0] <= start) ends.splice(i, 1);
      const below = ends.reduce((sum, each) => sum + each[1], 0);
      ends.push([end, height]);
      parts.push(draw("rect", { x: x(start), y: Math.max(top, top + LANE - below - height), height,
        width: Math.max(1.5, x(end) - x(start)), fill: colourOf(job.name || job.id) },
      title(`${job.id}: ${new Date(start).toLocaleString()}, ${bytes(share * capacity)}`)));
    }
  });
  const height = devices.length * (LANE + 8) + 14;
  parts.push(draw("text", { class: "faint", x: 90, y: height - 3 },
    new Date(begin).toLocaleString()));
  parts.push(draw("text", { class: "faint", x: WIDTH, y: height - 3, "text-anchor": "end" },
    "now"));
  return picture(height, "reservations over time", parts);
}

/** Loss by step, and that of evaluations. */
export function lossCurve(series) {
  const pointsOf = (name) => {
    const found = series.find((each) => each.name === name);
    return (found?.steps || []).map((step, i) => [Number(step), found.values[i]])
      .filter(([, loss]) => Number.isFinite(loss));
  };
  const trained = pointsOf("loss"), evaluated = pointsOf("eval_loss");
  const all = [...trained, ...evaluated];
  if (all.length === 0) return null;
  const height = 240, left = 60, bottom = 24;
  const last = all.reduce((most, [step]) => Math.max(most, step), 1);
  const high = all.reduce((most, [, loss]) => Math.max(most, loss), -Infinity);
  const low = all.reduce((least, [, loss]) => Math.min(least, loss), Infinity);
  const span = high - low || 1;
  const x = (step) => left + (WIDTH - left - 4) * step / last;
  const y = (loss) => 8 + (height - bottom - 8) * (high - loss) / span;
  const parts = [];
  for (const part of [0, 0.5, 1]) {
    const loss = low + part * span;
    parts.push(draw("path", { class: "grid", d: `M${left} ${y(loss)}H${WIDTH}` }));
    parts.push(draw("text", { class: "faint", x: left - 6, y: y(loss) + 4, "text-anchor": "end" },
      loss.toPrecision(4)));
  }
  const path = (points) => points.map(([step, loss], i) => `${i ? "L" : "M"}${x(step)} ${y(loss)}`);
  const curve = (points, colour) =>
    draw("path", { class: "curve", stroke: colour, d: path(points).join("") });
  parts.push(curve(thin(trained), "hsl(215 70% 50%)"));
  parts.push(curve(evaluated, "hsl(20 80% 50%)"));
  for (const [step, loss] of evaluated)
    parts.push(draw("circle", { cx: x(step), cy: y(loss), r: 3, fill: "hsl(20 80% 50%)" },
      title(`evaluation at step ${step}: ${loss}`)));
  parts.push(draw("text", { class: "faint", x: WIDTH, y: height - 6, "text-anchor": "end" },
    `step ${last}`));
  return picture(height, "loss by step", parts);
}

/** At most two points per pixel: the lowest and the highest of each stretch. */
function thin(points) {
  const each = Math.ceil(points.length / WIDTH);
  if (each <= 1) return points;
  const kept = [];
  for (let i = 0; i < points.length; i += each) {
    const stretch = points.slice(i, i + each);
    const low = stretch.reduce((a, b) => (b[1] < a[1] ? b : a));
    const high = stretch.reduce((a, b) => (b[1] > a[1] ? b : a));
    kept.push(...(low[0] <= high[0] ? [low, high] : [high, low]));
  }
  return kept;
}

/** The predicted peak, by component, and the measured one, against what is reserved. */
export function memoryBars(memory, components) {
  const predicted = Number(memory.predicted_peak_bytes || 0);
  const measured = Number(memory.measured_peak_bytes || 0);
  const budget = Number(memory.budget_bytes || 0);
  const scale = (WIDTH - 90) / Math.max(predicted, measured, budget, 1);
  const parts = [];
  const row = (label, y, inside) => {
    parts.push(draw("text", { x: 0, y: y + 15 }, label));
    parts.push(draw("rect", { class: "track", x: 90, y, width: budget * scale, height: 20 }));
    parts.push(...inside);
  };
  let left = 90;
  row("predicted", 0, components.map(([name, count]) => {
    const width = count * scale;
    const rect = draw("rect", { x: left, y: 0, width, height: 20, fill: colourOf(name) },
      title(`${name}: ${bytes(count)}`));
    left += width;
    return rect;
  }));
  row("measured", 26, [draw("rect",
    { x: 90, y: 26, width: measured * scale, height: 20, fill: "hsl(160 45% 42%)" },
    title(bytes(measured)))]);
  const ratio = predicted && measured ? `, measured / predicted ${(measured / predicted).toFixed(4)}`
    : "";
  parts.push(draw("text", { class: "faint", x: 90, y: 64 },
    `${bytes(predicted)} predicted, ${bytes(measured)} measured, ${bytes(budget)} reserved${ratio}`));
  return picture(70, "memory predicted and measured", parts);
}
