// The list of nodes: only the rows that can be seen are in the document, so that its length costs nothing.
'use strict';

const kRow = 20;

class List {
  constructor(element, space, onPick) {
    Object.assign(this, {element, space, onPick, rows: [], picked: -1});
    element.addEventListener('scroll', () => this.draw());
    element.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(element);
  }

  // `keep(n)`: which nodes are shown. Nodes that are gone stand where they stood, when everything is shown.
  show(graph, keep) {
    this.graph = graph;
    const gone = keep ? [] : graph.changes?.removed_nodes ?? [];
    this.rows = [];
    let g = 0;
    const order = gone.map((_, i) => i).sort((a, b) => gone[a][0] - gone[b][0] || a - b);
    for (let n = 0; n <= graph.count; n++) {
      for (; g < order.length && gone[order[g]][0] <= n; g++) this.rows.push({gone: gone[order[g]]});
      if (n < graph.count && (!keep || keep(n))) this.rows.push(n);
    }
    this.space.style.height = this.rows.length * kRow + 'px';
    this.draw();
    return this.rows.length;
  }

  draw() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / kRow) - 5);
    const last = Math.min(this.rows.length, first + Math.ceil(this.element.clientHeight / kRow) + 10);
    const rows = [];
    for (let i = first; i < last; i++) rows.push(this.row(i));
    this.space.replaceChildren(...rows);
  }

  row(i) {
    const entry = this.rows[i], graph = this.graph, row = document.createElement('div');
    const at = document.createElement('span'), where = document.createElement('span');
    at.className = 'at';
    where.className = 'where';
    row.style.top = i * kRow + 'px';
    if (entry.gone) {
      row.className = 'row removed';
      row.append(at, entry.gone[2]);
      return row;
    }
    const picked = entry === this.picked ? 'picked' : '';
    row.className = ['row', data.phases[graph.phase[entry]], graph.state(entry), picked].join(' ');
    at.textContent = entry;
    where.textContent = text(graph.module[entry]);
    row.append(at, graph.line[entry], where);
    row.addEventListener('click', () => this.onPick(entry));
    return row;
  }

  // Marks node n and brings it into sight, if it is among the rows.
  pick(n) {
    this.picked = n;
    const i = this.rows.indexOf(n), top = i * kRow, view = this.element;
    if (i >= 0 && (top < view.scrollTop || top + kRow > view.scrollTop + view.clientHeight))
      view.scrollTop = top - view.clientHeight / 2;
    this.draw();
  }

  // The next row that is a node, from the picked one on, in steps of `by`.
  step(by) {
    for (let i = this.rows.indexOf(this.picked) + by; i >= 0 && i < this.rows.length; i += by)
      if (!this.rows[i].gone) return this.onPick(this.rows[i]);
  }

  key(event) {
    const by = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (!by) return;
    event.preventDefault();
    this.step(by);
  }
}
