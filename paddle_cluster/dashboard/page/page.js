// SPDX-License-Identifier: Apache-2.0
// The page: shows the data that the server embedded, then the events that follow; stops jobs and captures stacks after a
// confirmation.

import { Curves } from "./curves.js";
import { Log } from "./log.js";
import { drawChecks, drawReport, folded } from "./report.js";
import { Table } from "./table.js";
import { ago, byId, bytes, counted, element, fill, isNumber, number, ofAll, percent, perSecond, put, putTone, span, speed, stateOf, whole } from "./words.js";

const shown = { jobs: [], job: null, failure: null, failed: new Set(), id: "" };
const log = new Log(() => shown.id);
const curves = new Curves();
const ROLES = ["pserver", "trainer"];
const KNOWN = new Set();
const NARROW = matchMedia("(max-width: 760px)"); // as in page.css: columns without their totals
NARROW.onchange = () => nodes.draw();

// In a job that has ended, only processes that failed are marked; the launcher ended the others.
const isBad = (row) =>
  shown.failed.has(row.name) || Boolean(row.error) || (!shown.job?.ended_at && Boolean(row.code || row.signal));
const oddFirst = (row) => (isBad(row) ? 0 : 1);

const processes = new Table(
  byId("processes"),
  "Processes",
  [],
  (row) => [oddFirst(row), ROLES.indexOf(row.role), row.rank, row.name],
  byId("processes-filter"),
);

const nodes = new Table(
  byId("nodes"),
  "Nodes",
  [],
  (row) => [oddFirst(row), row.node_id],
  byId("nodes-filter"),
);

function toneOf(row) {
  if (isBad(row)) return "bad";
  if (row.code === 0) return "good";
  return row.state === "running" ? "busy" : "unknown";
}

// Format of a fact, as named in control/views.py -> its text and, unless it is the fact itself, the column's sort key.
const FORMS = {
  word: { text: (value) => (value == null ? "" : String(value)) },
  count: { text: (value) => number(value) },
  batch: { text: (value, row) => (isNumber(row.pass_id) ? number(value) : "") },
  step: { text: (value, row) => (isNumber(row.pass_id) ? "" : number(value)) },
  speed: { text: speed },
  number: { text: (value) => number(value) },
  whole: { text: whole },
  percent: { text: percent },
  bytes: { text: bytes },
  rate: { text: perSecond },
  of_total: { text: (value, row) => (NARROW.matches ? bytes(value) : ofAll(value, row.memory_total_bytes)) },
  ago: { text: (value) => (shown.job?.ended_at ? "" : ago(value)) },
  state: { text: (_, row) => stateOf(row), value: stateOf },
  waiting: { text: waiting, value: (row) => row.waited_s },
  discarded: { text: (value, row) => (isNumber(row.pushed) && isNumber(value) ? `${value} of ${row.pushed}` : "") },
  gpus: { text: gpus, value: (row) => row.gpu_percent },
  rows: { text: rows },
  directory: { text: (value, row) => row.error || value || "", value: (row) => row.error || row.job_dir },
};
const NUMBERS = new Set(["count", "batch", "step", "speed", "number", "whole", "percent", "bytes", "rate", "of_total", "waiting", "discarded", "gpus", "rows"]);

// The appearance of a column, apart from its text.
const LOOKS = {
  processes: {
    name: { value: (row) => row.rank, act: (row) => log.ask(row.name), always: true },
    node: { wide: true },
    pid: { kind: "number", wider: true },
    state: { tone: toneOf },
    last_line: { kind: "said", wide: true },
  },
  nodes: {
    name: { always: true },
    heard_at: { wide: true },
    received_bytes_per_s: { wide: true },
    sent_bytes_per_s: { wide: true },
    state: { tone: (row) => (row.error ? "bad" : "") },
    hostname: { wide: true },
    job_dir: { kind: "said", wide: true },
  },
};

function columnsOf(facts, looks) {
  return facts.filter(({ title, field }) => title && field !== METRICS).map(({ field, title, form }) => {
    const { text, value } = FORMS[form];
    const kind = NUMBERS.has(form) ? { kind: "number" } : {};
    return { title, text: (row) => text(row[field], row), value: value ?? ((row) => row[field]), ...kind, ...looks[field] };
  });
}

function gpus(count, row) {
  if (!count) return "";
  const told = [percent(row.gpu_percent), NARROW.matches ? "" : ofAll(row.gpu_memory_bytes, row.gpu_memory_total_bytes)];
  return `${count}: ${told.filter(Boolean).join(", ")}`;
}

// Growing tables: rows, their bytes in memory and on disk, the share of ids found in memory, and dropped rows.
function rows(count, row) {
  if (!count) return "";
  const found = row.rows_asked ? `${percent((100 * row.rows_found) / row.rows_asked)} found` : "";
  const dropped = row.rows_dropped ? `${number(row.rows_dropped)} dropped` : "";
  return [number(count), bytes(row.rows_bytes + row.rows_disk_bytes), found, dropped].filter(Boolean).join(", ");
}

// A pserver's queue: the number of waiting trainers, the trainers they wait for, and the time since the last update.
function waiting(count, row) {
  if (!count) return "";
  const since = row.waited_s >= 1 ? `, ${span(row.waited_s)}` : "";
  return `${count}${row.missing ? ` for ${row.missing}` : ""}${since}`;
}

// The values that a script reports in addition to its progress; each title has a column.
const METRICS = "metrics";

function addMetrics(rows) {
  for (const title of Object.values(rows).flatMap((row) => Object.keys(row[METRICS] ?? {}))) {
    if (KNOWN.has(`${METRICS}.${title}`)) continue;
    KNOWN.add(`${METRICS}.${title}`);
    const value = (row) => row[METRICS]?.[title];
    processes.columns.splice(-1, 0, { title, text: (row) => number(value(row)), value, kind: "number" });
  }
}

// A fact that only a newer launcher knows gets a column with its own name.
function addColumns(rows) {
  for (const row of Object.values(rows)) {
    for (const [key, value] of Object.entries(row)) {
      if (KNOWN.has(key) || !isNumber(value)) continue;
      KNOWN.add(key);
      const text = key.endsWith("_bytes") ? (row) => bytes(row[key]) : (row) => number(row[key]);
      const title = key.replace(/_bytes$/, "").replace(/_per_s$/, "/s").replaceAll("_", " ");
      processes.columns.splice(-1, 0, { title, text, value: (row) => row[key], kind: "number" });
    }
  }
}

const take = {
  columns(facts) {
    for (const { field } of facts.processes) KNOWN.add(field);
    processes.columns = columnsOf(facts.processes, LOOKS.processes);
    nodes.columns = columnsOf(facts.nodes, LOOKS.nodes);
  },
  jobs(jobs) {
    shown.jobs = jobs;
    drawJobs();
    drawOthers();
  },
  job(job) {
    shown.job = job;
    shown.failed = new Set(job?.failures.map((one) => one.process).filter(Boolean));
    drawJob();
  },
  processes(change) {
    addColumns(change.rows);
    addMetrics(change.rows);
    processes.change(change);
    byId("processes-part").hidden = !processes.rows.size;
    fill(byId("who"), whoSpeaks(), () => element("option"), (option, name) => { if (option.value !== name) option.value = name; });
    drawJob();
  },
  nodes: (change) => nodes.change(change),
  preflight: drawChecks,
  curve: (curve) => curves.cost(curve),
  curves: (found) => curves.metrics(found),
  failure(failure) {
    shown.failure = failure;
    drawReport(shown.job, failure);
  },
  log: (lines) => log.come(lines),
};

// The other job's curves, requested again while that job runs

const other = byId("other");
const REFRESH_MS = 5000;
let refreshed = 0;

function drawOthers() {
  const chosen = other.value;
  const found = [{ id: "", title: "no other job" }, ...shown.jobs.filter((job) => job.id !== shown.id)];
  fill(other, found, () => element("option"), (option, job) => {
    option.value = job.id;
    put(option, job.id ? `${job.title} ${placeOf(job)}, ${ago(job.submitted_at)}` : job.title);
  });
  other.value = found.some((job) => job.id === chosen) ? chosen : "";
  byId("beside").hidden = found.length < 2;
  const job = shown.jobs.find((one) => one.id === other.value);
  if (job && !job.ended_at && Date.now() - refreshed > REFRESH_MS) compare();
}

async function compare() {
  refreshed = Date.now();
  const job = shown.jobs.find((one) => one.id === other.value);
  try {
    curves.compare(job?.title, job && (await (await fetch(`curves?${new URLSearchParams({ job: job.id })}`)).json()));
  } catch {
    tell("no connection to the dashboard");
  }
}

other.onchange = compare;

function whoSpeaks() {
  const names = [...processes.rows.keys()];
  return ["launcher", ...ROLES.filter((role) => names.some((name) => name.startsWith(role))), ...names.slice(0, 50)];
}

// The last part of a job's workspace
const placeOf = (job) => job.workspace.split("/").filter(Boolean).pop() ?? "";

function drawJobs() {
  fill(byId("jobs"), shown.jobs, jobItem, (item, job) => {
    const [link] = item.children;
    const [id, state, about] = link.children;
    link.href = `?${new URLSearchParams({ job: job.id })}`;
    if (job.id === shown.id) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    put(id, job.title);
    putTone(state, job.tone, job.state);
    put(about, ` ${placeOf(job)}, ${counted(job.nodes, "node")}, ${ago(job.submitted_at)}`);
  });
}

function jobItem() {
  const item = element("li");
  const link = element("a");
  link.append(element("b"), element("span"), element("span", "", "quiet"));
  item.append(link);
  return item;
}

function drawJob() {
  const job = shown.job;
  byId("shown").hidden = !job;
  byId("nothing").hidden = Boolean(job);
  if (!job) return;
  document.title = `${job.title}: ${job.state}`;
  put(byId("title"), job.title);
  putTone(byId("state"), job.tone, job.state);
  put(byId("about"), [job.title === job.id ? "" : job.id, job.workspace, job.mode, `by ${job.user}`, job.launcher, job.detached ? "detached" : ""].filter(Boolean).join(" · "));
  byId("actions").hidden = !job.can_be_asked;
  byId("health").hidden = !job.health.length;
  fill(byId("health"), job.health, () => element("li"), put);
  byId("options").hidden = !job.options.length;
  fill(byId("given"), job.options, optionRow, ({ children }, texts) => texts.forEach((text, at) => put(children[at], text)));
  nameDownload();
  drawFacts(job);
  drawReport(job, shown.failure);
}

function optionRow() {
  const made = element("tr");
  made.append(element("td"), element("td"), element("td", "", "quiet"));
  return made;
}

function drawFacts(job) {
  const rows = [...processes.rows.values()];
  const trainers = rows.filter((row) => isNumber(row.batch_id));
  const last = trainers.reduce((least, row) => (least && isBefore(least, row) ? least : row), null);
  const first = trainers.find((row) => row.name === "trainer-0") ?? trainers[0];
  const fast = trainers.filter((row) => row.state === "running" && isNumber(row.samples_per_s));
  const end = job.ended_at ?? Date.now() / 1000;
  const facts = [
    ["phase", job.phase],
    [job.ended_at ? "took" : "running for", span(end - job.submitted_at, 2)],
    ["nodes", String(job.nodes)],
    ...ROLES.map((role) => [`${role}s`, states(rows.filter((row) => row.role === role))]),
    ["total samples/s", job.ended_at || !fast.length ? "" : speed(fast.reduce((sum, row) => sum + row.samples_per_s, 0))],
    [`cost of ${first?.name}`, first ? number(first.cost) : ""],
    ["slowest trainer", last && !job.ended_at && trainers.some((row) => !isBefore(row, last)) ? `${last.name}: ${stepOf(last)}` : ""],
    ["logs", job.logs],
  ].filter(([, value]) => value);
  fill(byId("facts"), facts, pair, ({ children: [title, value] }, fact) => {
    put(title, fact[0]);
    put(value, fact[1]);
    title.parentElement.className = fact[1].length > LONG ? "long" : "";
  });
}

const LONG = 17; // characters, which one column does not take

function pair() {
  const made = element("div");
  made.append(element("dt"), element("dd"));
  return made;
}

const passOf = (row) => row.pass_id ?? 0;
const isBefore = (a, b) => passOf(a) < passOf(b) || (passOf(a) === passOf(b) && a.batch_id <= b.batch_id);
const stepOf = (row) => (isNumber(row.pass_id) ? `pass ${row.pass_id} batch ${row.batch_id}` : `step ${row.batch_id}`);

function states(rows) {
  const many = new Map();
  for (const row of rows) many.set(stateOf(row), (many.get(stateOf(row)) ?? 0) + 1);
  return [...many].map(([state, count]) => `${count} ${state}`).join("; ");
}

function nameDownload() {
  const process = byId("process").value.trim();
  byId("download").href = `download?${new URLSearchParams(process ? { job: shown.id, process } : { job: shown.id })}`;
}

byId("download").onclick = nameDownload;

// Stop and stacks

function tell(text) {
  put(byId("told"), text);
  byId("told").hidden = !text;
}

async function sure(title, text, verb, mayForce) {
  put(byId("sure-title"), title);
  put(byId("sure-text"), text);
  put(byId("sure-yes"), verb);
  byId("sure-force").hidden = !mayForce;
  byId("force").checked = false;
  const dialog = byId("sure");
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  return dialog.returnValue === "yes";
}

async function post(path, body) {
  try {
    const response = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    const text = await response.text();
    return response.headers.get("Content-Type") === "application/json" ? JSON.parse(text) : { told: text };
  } catch {
    return { told: "no connection to the dashboard" };
  }
}

byId("stop").onclick = async () => {
  const id = shown.id;
  const text = "Its processes receive a signal to end, can save their state, and are killed after STOP_GRACE_S.";
  if (await sure(`Stop ${shown.job.title}?`, text, "Stop the job", true)) {
    tell((await post("stop", { job: id, force: byId("force").checked })).told);
  }
};

// The first processes of the list, as many as the launcher accepts in one request.
const MOST_ASKED = 32;

byId("stacks").onclick = async () => {
  const id = shown.id;
  const running = processes.inOrder().filter((row) => row.state === "running").map((row) => row.name);
  const names = running.slice(0, MOST_ASKED);
  if (!names.length) {
    tell("none of the listed processes is running");
    return;
  }
  const which = running.length > MOST_ASKED ? `the first ${MOST_ASKED} of ${running.length} in the list` : names.length > 4 ? `${names.length} processes` : names.join(", ");
  const text = `Captures the Python stacks of all threads of ${which}. The processes keep running; the stacks also go to their logs.`;
  if (!(await sure("Capture stacks?", text, "Capture", false))) return;
  tell("capturing; this can take two seconds");
  const answer = await post("stacks", { job: id, processes: names });
  tell(answer.told ?? "");
  if (answer.stacks) drawPlaces(answer.stacks);
};

byId("places-close").onclick = () => { byId("places").hidden = true; };

// Processes with the same stacks are grouped.
function drawPlaces(stacks) {
  const groups = new Map();
  for (const [name, text] of Object.entries(stacks)) {
    const alike = text.replace(/0x[0-9a-f]+/g, "0x").replace(/File "[^"]*\//g, 'File "');
    groups.set(alike, { text, names: [...(groups.get(alike)?.names ?? []), name] });
  }
  byId("places-found").replaceChildren(
    ...[...groups.values()].map(({ text, names }, at) => folded(names.join(", "), text, at < 3)),
  );
  byId("places").hidden = false;
  byId("places").scrollIntoView({ block: "nearest" });
}

// Events are received only while the page is visible

let events = null;

function listen() {
  if (events || document.hidden) return;
  events = new EventSource(`events?${new URLSearchParams({ job: shown.id })}`);
  events.onopen = () => put(byId("link"), "live");
  events.onerror = () => put(byId("link"), "no connection to the dashboard; the page may be out of date");
  for (const [name, act] of Object.entries(take)) {
    events.addEventListener(name, (event) => act(JSON.parse(event.data)));
  }
}

function lookAway() {
  events?.close();
  events = null;
  put(byId("link"), "paused");
}

document.addEventListener("visibilitychange", () => (document.hidden ? lookAway() : listen()));
addEventListener("pagehide", lookAway);
addEventListener("pageshow", listen);

const first = JSON.parse(byId("first").textContent);
shown.id = first.job?.id ?? new URLSearchParams(location.search).get("job") ?? "";
for (const [name, value] of Object.entries(first)) take[name]?.(value);
listen();
