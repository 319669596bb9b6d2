// SPDX-License-Identifier: Apache-2.0
// A table that is sorted, filtered and shown one page at a time, so that its cost does not grow with the number of rows.

import { element, put } from "./words.js";

const PAGE = 100;

export class Table {
  // columns: {title, text(row), value(row)?, kind?: "number" | "said" | "button" | "tone", wide?, wider?, act?(row)}
  constructor(root, caption, columns, natural, filter) {
    this.columns = columns;
    this.natural = natural; // the order where no column is chosen: a list of what to compare by
    this.rows = new Map();
    this.page = 0;
    this.sorted = null;
    this.down = false;
    this.filter = filter;
    const scroll = element("div", "", "scroll");
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", caption);
    this.table = element("table");
    this.head = this.table.createTHead().insertRow();
    this.body = this.table.createTBody();
    scroll.append(this.table);
    this.pages = element("div", "", "pages");
    this.back = element("button", "Previous");
    this.next = element("button", "Next");
    this.where = element("span");
    this.where.setAttribute("role", "status");
    this.back.onclick = () => this.turn(-1);
    this.next.onclick = () => this.turn(1);
    this.pages.append(this.back, this.next, this.where);
    root.replaceChildren(scroll, this.pages);
    filter.oninput = () => { this.page = 0; this.draw(); };
  }

  change({ rows, gone }) {
    for (const key of gone) this.rows.delete(key);
    for (const [key, row] of Object.entries(rows)) this.rows.set(key, row);
    this.draw();
  }

  clear() {
    this.rows.clear();
    this.page = 0;
  }

  turn(by) {
    this.page += by;
    this.draw();
  }

  draw() {
    if (this.due) return;
    this.due = true;
    queueMicrotask(() => { this.due = false; this.drawNow(); });
  }

  drawNow() {
    const all = [...this.rows.values()];
    const shown = this.columns.filter((column) => column.always || all.some((row) => column.text(row) !== ""));
    this.drawHead(shown);
    const found = this.inOrder();
    const last = Math.max(0, Math.ceil(found.length / PAGE) - 1);
    this.page = Math.min(Math.max(0, this.page), last);
    const rows = found.slice(this.page * PAGE, (this.page + 1) * PAGE);
    while (this.body.rows.length > rows.length) this.body.deleteRow(-1);
    rows.forEach((row, at) => this.drawRow(this.body.rows[at] ?? this.body.insertRow(), row, shown));
    this.pages.hidden = last === 0 && found.length === all.length;
    this.back.disabled = this.page === 0;
    this.next.disabled = this.page === last;
    const first = this.page * PAGE;
    put(this.where, found.length ? `${first + 1}–${first + rows.length} of ${found.length}` : "no matches");
  }

  inOrder() {
    return this.order(this.found([...this.rows.values()]));
  }

  found(all) {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return all;
    return all.filter((row) => {
      const text = this.columns.map((column) => column.text(row)).join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }

  order(rows) {
    const column = this.sorted;
    const keys = column ? (row) => [(column.value ?? column.text)(row), ...this.natural(row)] : this.natural;
    const decorated = rows.map((row) => [keys(row), row]);
    decorated.sort(([a], [b]) => {
      for (let at = 0; at < a.length; at++) {
        const order = compare(a[at], b[at]);
        if (order) return at === 0 && column && this.down ? -order : order;
      }
      return 0;
    });
    return decorated.map(([, row]) => row);
  }

  drawHead(columns) {
    const wanted = columns.map((column) => column.title).join("|");
    if (this.head.dataset.columns !== wanted) {
      this.head.dataset.columns = wanted;
      this.body.replaceChildren();
      this.head.replaceChildren(...columns.map((column) => this.headOf(column)));
    }
    columns.forEach((column, at) => {
      const cell = this.head.cells[at];
      if (column === this.sorted) cell.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
  }

  headOf(column) {
    const cell = element("th", "", classOf(column));
    cell.scope = "col";
    const button = element("button", column.title);
    button.type = "button";
    button.onclick = () => {
      const again = this.sorted === column;
      if (again && this.down) [this.sorted, this.down] = [null, false]; // the third time: as it was
      else [this.sorted, this.down] = [column, again];
      this.draw();
    };
    cell.append(button);
    return cell;
  }

  drawRow(line, row, columns) {
    columns.forEach((column, at) => {
      const cell = line.cells[at] ?? line.insertCell();
      const text = column.text(row);
      if (column.act) {
        if (!cell.firstChild) cell.append(element("button"));
        put(cell.firstChild, text);
        cell.firstChild.onclick = () => column.act(row);
      } else put(cell, text);
      const name = [classOf(column), column.tone?.(row) ?? ""].filter(Boolean).join(" ");
      if (cell.className !== name) cell.className = name;
      if (column.kind === "said" && cell.title !== text) cell.title = text;
    });
  }
}

const classOf = (column) => [column.kind ?? "", column.wide ? "wide" : "", column.wider ? "wider" : ""].filter(Boolean).join(" ");

function compare(a, b) {
  if (a === b) return 0;
  const [none, other] = [a === undefined || a === null || a === "", b === undefined || b === null || b === ""];
  if (none || other) return none - other; // what is not known comes last
  return a < b ? -1 : 1;
}
