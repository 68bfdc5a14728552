"use strict";
// Tables sort by a click on a head: best first, then the other way round, then as they were.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const number = (text) => {
    const found = text.replaceAll(",", "").replaceAll("−", "-").match(/[-+]?\d+(\.\d+)?([eE][-+]?\d+)?/);
    return found ? parseFloat(found[0]) : NaN;
  };
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const numeric = head.classList.contains("number");
      const order = numeric ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
      const next = order[(order.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", next);
      table.classList.toggle("sorted", next !== "none");
      const sign = next === "descending" ? -1 : 1;
      const text = (row) => row.cells[column].textContent.trim();
      const compare = (a, b) => {
        if (!numeric) return sign * text(a).localeCompare(text(b), undefined, { numeric: true });
        const [x, y] = [number(text(a)), number(text(b))];
        if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y); // what is missing stays below
        return sign * (x - y);
      };
      body.append(...(next === "none" ? original : [...original].sort(compare)));
    });
  });
}
