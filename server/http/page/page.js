// The status page: keeps what the daemon's events say, and draws it.
import { bytes, deviceBar, lossCurve, memoryBars, timeline } from "./charts.js";

const at = (id) => document.getElementById(id);
const jobs = new Map();  // By key, as the daemon last told.
const rows = new Map();  // Of the table, by the same.
const ENDED = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);
let server = {}, chosen = null, dirty = false;

function node(name, text = "", className = "") {
  const element = document.createElement(name);
  if (text !== "") element.textContent = text;
  if (className) element.className = className;
  return element;
}

function drawDevices() {
  at("version").textContent = server.version ? `version ${server.version}` : "";
  at("devices").replaceChildren(...(server.devices || []).map((device) => {
    const box = node("div", "", "device");
    const measured = device.measured_bytes ? `, ${bytes(device.measured_bytes)} in use` : "";
    box.append(node("p", `${device.name} ${device.model || ""}: ${bytes(device.reserved_bytes)} of ` +
      `${bytes(device.capacity_bytes)} reserved for ${(device.reservations || []).length} ` +
      `jobs${measured}`), deviceBar(device));
    if (device.trouble) box.append(node("p", device.trouble, "trouble"));
    return box;
  }));
  const picture = timeline(server.devices || [], [...jobs.values()], Date.now());
  at("timeline").replaceChildren(picture || node("p", "No job has run yet."));
}

function progressOf(job) {
  const cell = node("td");
  const { global_step: step = 0, max_steps: steps = 0 } = job.progress || {};
  if (Number(steps) > 0) {
    const bar = node("progress");
    bar.max = Number(steps);
    bar.value = Number(step);
    cell.append(bar, ` ${step} / ${steps}`);
  }
  return cell;
}

function rowOf(job) {
  const row = node("tr");
  const name = node("td"), button = node("button", job.id);
  name.append(button);
  if (job.display_name) name.append(" ", node("small", job.display_name));
  const loss = job.progress?.loss;
  const memory = job.memory || {};
  const used = memory.measured_peak_bytes
    ? `${bytes(memory.measured_peak_bytes)} of ${bytes(memory.predicted_peak_bytes)}`
    : memory.predicted_peak_bytes ? bytes(memory.predicted_peak_bytes) : "";
  row.append(name, node("td", job.state, job.state), node("td", job.device || ""), progressOf(job),
    node("td", Number.isFinite(loss) ? loss.toPrecision(4) : "", "number"),
    node("td", used, "number"), node("td", memory.plan || ""));
  row.addEventListener("click", () => choose(job.key));
  row.classList.toggle("chosen", job.key === chosen);
  return row;
}

function isShown(job) {
  const words = at("filter").value.toLowerCase().split(/\s+/);
  const text = [spelled(job), job.display_name, job.state, job.device].join(" ").toLowerCase();
  return words.every((word) => text.includes(word)) &&
    !(at("live").checked && ENDED.has(job.state));
}

function filter() {
  let shown = 0;
  for (const [key, row] of rows) {
    row.hidden = !isShown(jobs.get(key));
    shown += row.hidden ? 0 : 1;
  }
  at("count").textContent = `${shown} of ${jobs.size}`;
}

// ID.TENANT: an id alone may be that of several tenants' jobs.
function spelled(job) {
  const tenant = (job?.name || "").split("/")[1];
  return tenant ? `${job.id}.${tenant}` : job?.id;
}

function newestFirst(a, b) {
  return Date.parse(b.create_time || 0) - Date.parse(a.create_time || 0);
}

function takeJobs(changed) {
  let isNew = false;
  for (const job of changed) {
    job.key ||= job.id;
    jobs.set(job.key, job);
    const row = rowOf(job), before = rows.get(job.key);
    if (before) before.replaceWith(row);
    isNew ||= !before;
    rows.set(job.key, row);
  }
  if (isNew) {
    const order = [...jobs.values()].sort(newestFirst);
    at("jobs").replaceChildren(...order.map((job) => rows.get(job.key)));
  }
  filter();
  dirty = true;
  const linked = decodeURIComponent(location.hash.slice(1));
  if (chosen === null && jobs.has(linked)) choose(linked);
  if (changed.some((job) => job.key === chosen)) drawDetails();
}

function dropJobs(keys) {
  for (const key of keys) {
    rows.get(key)?.remove();
    rows.delete(key);
    jobs.delete(key);
  }
  filter();
  dirty = true;
}

async function ask(path) {
  const response = await fetch(path);
  const text = await response.text();
  if (!response.ok) throw new Error(JSON.parse(text).error.message);
  return text;
}

function fill(id, content) {
  at(id).replaceChildren(content);
}

function choose(key) {
  rows.get(chosen)?.classList.remove("chosen");
  chosen = key;
  history.replaceState(null, "", `#${key}`);  // A link to the job.
  rows.get(chosen)?.classList.add("chosen");
  for (const part of ["curve", "memory", "plans"]) at(part).replaceChildren();
  drawDetails();
  drawPlans(key);
  at("details").hidden = false;
  at("details").scrollIntoView({ behavior: "smooth" });
}

async function drawDetails() {
  const key = chosen, place = `api/jobs/${spelled(jobs.get(key))}`;
  at("details-title").textContent = jobs.get(key)?.id || key;
  at("reason").textContent = jobs.get(key)?.reason || "";
  try {
    const job = JSON.parse(await ask(place));
    const history = JSON.parse(await ask(`${place}/metrics`));
    if (key !== chosen) return;
    fill("curve", lossCurve(history.series || []) || node("p", "No step has been done yet."));
    const parts = Object.entries(job.plan?.memory || {})
      .filter(([name, count]) => name.endsWith("_bytes") && Number(count) > 0)
      .map(([name, count]) => [name.replace(/_bytes$/, ""), Number(count)]);
    fill("memory", job.plan ? memoryBars(job.memory || {}, parts)
      : node("p", "It has no plan yet."));
  } catch (error) {
    if (key === chosen) fill("curve", node("p", error.message, "trouble"));
  }
}

async function drawPlans(key) {
  try {
    const answer = JSON.parse(await ask(`api/jobs/${spelled(jobs.get(key))}/plans`));
    if (key !== chosen) return;
    const table = node("table"), head = node("tr");
    for (const name of ["Plan", "Peak", "Host", "Seconds per step", "Fidelity"])
      head.append(node("th", name));
    table.append(head);
    const name = jobs.get(key)?.memory?.plan || answer.plans?.[answer.chosen || 0]?.name;
    for (const plan of answer.plans || []) {
      const row = node("tr", "", plan.name === name ? "in-force" : "");
      row.append(node("td", plan.name), node("td", bytes(plan.peak_bytes), "number"),
        node("td", plan.host_bytes ? bytes(plan.host_bytes) : "", "number"),
        node("td", plan.step_seconds ? plan.step_seconds.toPrecision(3) : "", "number"),
        node("td", (plan.fidelity || "").toLowerCase()));
      table.append(row);
    }
    fill("plans", answer.refusal ? node("p", answer.refusal, "trouble") : table);
  } catch (error) {
    if (key === chosen) fill("plans", node("p", error.message, "trouble"));
  }
}

function listen() {
  const events = new EventSource("api/events");
  const connection = at("connection");
  events.onopen = () => { connection.textContent = "live"; connection.className = ""; };
  events.onerror = () => {
    connection.textContent = "the daemon does not answer; trying again";
    connection.className = "lost";
  };
  events.addEventListener("server", (event) => { server = JSON.parse(event.data); dirty = true; });
  events.addEventListener("jobs", (event) => takeJobs(JSON.parse(event.data)));
  events.addEventListener("gone", (event) => dropJobs(JSON.parse(event.data)));
}

at("filter").addEventListener("input", filter);
at("live").addEventListener("change", filter);
setInterval(() => {
  if (!dirty) return;
  dirty = false;
  drawDevices();
}, 500);
listen();
