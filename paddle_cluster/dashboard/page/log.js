// SPDX-License-Identifier: Apache-2.0
// The merged log: its newest lines, or the results of a search.

import { byId, counted, element, put } from "./words.js";

const KEPT = 1500;
const LINE = /^(\S+ \S+) (\[[^\]]*\]) (.*)$/s;

export class Log {
  constructor(job) {
    this.job = job; // the id of the job that is shown
    this.pane = byId("lines");
    this.found = false;
    this.missed = 0;
    byId("search").onsubmit = (event) => {
      event.preventDefault();
      this.search();
    };
    byId("live").onclick = () => this.goOn();
  }

  come({ lines, left_out: leftOut, first }) {
    if (first) this.kept = [];
    this.missed = first ? 0 : this.missed + leftOut;
    this.kept = [...this.kept, ...lines].slice(-KEPT);
    if (this.found) return;
    const isAtEnd = this.pane.scrollHeight - this.pane.scrollTop - this.pane.clientHeight < 40;
    if (first) this.pane.replaceChildren();
    this.pane.append(...lines.map((line) => lineOf(line, "")));
    while (this.pane.childElementCount > KEPT) this.pane.firstElementChild.remove();
    if (isAtEnd || first) this.pane.scrollTop = this.pane.scrollHeight;
    this.tell();
  }

  tell() {
    const missed = this.missed ? `; ${counted(this.missed, "line")} arrived too fast to be shown here; the file contains them` : "";
    put(byId("log-told"), this.kept.length ? `the last ${counted(this.kept.length, "line")}${missed}` : "no lines yet");
  }

  ask(process) {
    byId("process").value = process;
    this.search();
    byId("search").scrollIntoView({ block: "start" });
  }

  async search() {
    const text = byId("text").value;
    const process = byId("process").value.trim();
    if (!text && !process) {
      this.goOn();
      return;
    }
    put(byId("log-told"), "searching");
    const query = new URLSearchParams({ job: this.job(), text, process });
    let answer;
    try {
      const response = await fetch(`log?${query}`);
      answer = response.ok ? await response.json() : { lines: [], told: await response.text() };
    } catch {
      answer = { lines: [], told: "no connection to the dashboard" };
    }
    this.found = true;
    byId("live").hidden = false;
    this.pane.replaceChildren(...answer.lines.map((line) => lineOf(line, text)));
    this.pane.scrollTop = this.pane.scrollHeight;
    put(byId("log-told"), `${counted(answer.lines.length, "line")} found${answer.told ? `; ${answer.told}` : ""}`);
  }

  goOn() {
    this.found = false;
    byId("live").hidden = true;
    byId("text").value = byId("process").value = "";
    this.pane.replaceChildren(...this.kept.map((line) => lineOf(line, "")));
    this.pane.scrollTop = this.pane.scrollHeight;
    this.tell();
  }
}

Log.prototype.kept = [];

function lineOf(line, wanted) {
  const made = element("div");
  const parts = LINE.exec(line);
  if (!parts) {
    made.textContent = line;
    return made;
  }
  if (parts[2] === "[launcher]") made.className = "launcher";
  made.append(element("time", `${parts[1].slice(11, 23)} `), element("b", `${parts[2]} `), ...marked(parts[3], wanted));
  made.firstChild.title = parts[1];
  return made;
}

function marked(text, wanted) {
  const lower = text.toLowerCase();
  const word = wanted.toLowerCase();
  if (!word || lower.length !== text.length) return [text];
  const parts = [];
  let at = 0;
  for (let hit = lower.indexOf(word); hit >= 0; hit = lower.indexOf(word, at)) {
    parts.push(text.slice(at, hit), element("mark", text.slice(hit, hit + word.length)));
    at = hit + word.length;
  }
  return [...parts, text.slice(at)];
}
