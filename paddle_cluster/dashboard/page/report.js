// SPDX-License-Identifier: Apache-2.0
// Why a job failed: the contents of failure.json if it exists, otherwise those of the last status.

import { byId, counted, element } from "./words.js";

const NAMED = 12;

let drawn = "";

export function drawReport(job, failure) {
  const wanted = JSON.stringify([failure, job?.exit_code, job?.failures, job?.why, job?.left]);
  if (drawn === wanted) return; // what somebody unfolded or selected stays so
  drawn = wanted;
  const parts = failure ? fromFile(failure) : fromStatus(job);
  byId("failure").hidden = parts.length === 0;
  byId("report").replaceChildren(...parts);
  for (const pre of byId("report").querySelectorAll("details[open] pre")) pre.scrollTop = pre.scrollHeight; // the error is last
}

function fromStatus(job) {
  if (!job || (job.exit_code === 0 && !job.left.length)) return [];
  const lines = job.failures.map((one) => `${one.process || "node"} on ${one.node}: ${one.what}`);
  return [...list("", lines.length ? lines : job.why), ...list("Remaining on the nodes:", job.left)];
}

function fromFile(failure) {
  const cause = failure.first_cause ?? {};
  const parts = [headline(cause)];
  if (cause.error) parts.push(element("p", cause.error));
  if (cause.advice) parts.push(element("p", `Try: ${cause.advice}`));
  if (cause.stacks) parts.push(folded("Its stacks", cause.stacks, true));
  if (Array.isArray(cause.log_end) && cause.log_end.length) parts.push(folded("End of its log", cause.log_end.join("\n"), true));
  if (cause.log) parts.push(element("p", `Complete log: ${cause.log}`, "quiet"));
  parts.push(...named("Other processes with the same last line", failure.same));
  parts.push(...list("Other failures:", entries(failure.failed_too).map((one) => `${name(one)}: ${one.error || one.what}`)));
  parts.push(...list("Consequences:", entries(failure.echoes).map((one) => `${name(one)}: ${one.why}`)));
  parts.push(...named("Ended by the launcher", failure.ended_by_us));
  parts.push(...list("Earlier incidents:", entries(failure.incidents).map((one) => `${one.time} ${one.text}`)));
  for (const [process, text] of Object.entries(failure.stacks ?? {})) {
    if (text) parts.push(folded(`Stacks of ${process}`, text, false));
  }
  return parts;
}

// The records in a list; the file is not trusted.
const entries = (value) => (Array.isArray(value) ? value.filter((one) => one && typeof one === "object") : []);

function headline(cause) {
  const made = element("p");
  made.append(element("b", `${name(cause)}: ${cause.what ?? ""}`));
  return made;
}

const name = (one) => `${one.process || "node"} on ${one.node ?? "?"}`;

function named(title, failures) {
  const names = entries(failures).map(name).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  if (!names.length) return [];
  const more = names.length > NAMED ? ` and ${names.length - NAMED} more` : "";
  return [element("p", `${title}: ${names.slice(0, NAMED).join(", ")}${more}`)];
}

function list(title, lines) {
  if (!lines?.length) return [];
  const made = element("ul");
  made.append(...lines.slice(0, NAMED).map((line) => element("li", line)));
  if (lines.length > NAMED) made.append(element("li", `and ${lines.length - NAMED} more`));
  return title ? [element("p", title), made] : [made];
}

// The table of preflight; rows with problems come first.
export function drawChecks(table) {
  byId("preflight").hidden = !table?.rows.length;
  if (!table?.rows.length) return;
  const [head, body] = byId("checks").querySelectorAll("thead, tbody");
  const told = (row) => row.filter((_, column) => table.rows.some((one) => one[column] !== ""));
  head.replaceChildren(rowOf("th", told(table.headers), ""));
  body.replaceChildren(...table.rows.map((row, at) => rowOf("td", told(row), at < table.wrong ? "bad" : "")));
  byId("checks-told").textContent = table.wrong ? `${counted(table.wrong, "node")} with problems` : `${counted(table.rows.length, "node")}, no problems`;
  byId("checks").open = table.wrong > 0;
}

function rowOf(kind, cells, tone) {
  const made = element("tr", "", tone);
  made.append(...cells.map((cell) => element(kind, cell)));
  return made;
}

export function folded(title, text, isOpen) {
  const made = element("details");
  made.open = isOpen;
  made.append(element("summary", title), element("pre", text));
  return made;
}
