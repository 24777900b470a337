// The panel, right: everything about one node, or what is live at one moment, or what changed. Every name is a link.
'use strict';

class Panel {
  constructor(element, go) {
    this.element = element;
    this.go = go;                    // node(graph index, node), module(path), moment(node), graph(graph index)
  }

  clear() { this.element.replaceChildren(); }

  put(tag, content, parent = this.element) {
    const made = document.createElement(tag);
    made.append(content);
    parent.append(made);
    return made;
  }

  link(words, action, parent = this.element) {
    const made = this.put('a', words, parent);
    made.addEventListener('click', action);
    return made;
  }

  rows(list) {
    const table = this.put('table', '');
    for (const cells of list) {
      const row = this.put('tr', '', table);
      for (const cell of cells) {
        const made = this.put('td', cell.node ?? String(cell.number ?? cell), row);
        if (cell.number !== undefined) made.className = 'number';
      }
    }
  }

  // A link to a node of the graph; inputs are only named.
  nodeLink(graph, index, n) {
    if (n < 0) return {node: document.createTextNode(graph.inputs[-1 - n])};
    const made = document.createElement('a');
    made.textContent = graph.nameOf(n);
    made.title = graph.line[n];
    made.addEventListener('click', () => this.go.node(index, n));
    return {node: made};
  }

  showNode(step, index, n) {
    const graph = step.graphs[index];
    this.clear();
    this.put('h2', graph.nameOf(n));
    this.put('pre', graph.line[n]);
    const facts = [['op', text(graph.op[n])], ['phase', data.phases[graph.phase[n]]]];
    if (text(graph.module[n])) {
      const module = document.createElement('a');
      module.textContent = text(graph.module[n]);
      module.addEventListener('click', () => this.go.module(text(graph.module[n])));
      facts.push(['module', {node: module}]);
    }
    if (text(graph.source[n])) facts.push(['source', text(graph.source[n])]);
    facts.push(['place', n + 1 + ' of ' + graph.count]);
    if (graph.forward[n] >= 0) facts.push(['backward of', this.nodeLink(graph, index, graph.forward[n])]);
    this.rows(facts);
    for (const body of graph.bodyOf(n)) {
      this.put('h3', 'runs');
      this.link('@' + step.graphs[body + 1].name, () => this.go.graph(body + 1));
    }
    this.showChange(graph, n);
    this.showTime(step, graph, n);
    this.showLinks(graph, index, 'takes', graph.makers(n));
    this.showLinks(graph, index, 'used by', graph.users(n));
    if (index === 0) this.showPieces(step, n);
  }

  showChange(graph, n) {
    const edit = graph.edit.get(n);
    if (!edit) return;
    this.put('h3', graph.state(n));
    if (edit[1]) this.put('div', edit[1]);
    if (edit[2] >= 0) this.put('div', graph.changes.explanations[edit[2]].text);
  }

  showTime(step, graph, n) {
    const e = graph.event?.[n] ?? -1, time = step.time;
    if (e < 0) return;
    this.put('h3', 'time on ' + data.machine);
    this.rows([
      ['begins', duration(time.begin[e])],
      ['takes', duration(time.end[e] - time.begin[e])],
      ['on', time.lanes[time.lane[e]]],
      ['critical path', time.critical[e] ? 'yes' : 'no'],
    ]);
  }

  showLinks(graph, index, title, nodes) {
    if (nodes.length === 0) return;
    this.put('h3', title + ' (' + nodes.length + ')');
    this.rows(nodes.slice(0, 60).map((n) => [this.nodeLink(graph, index, n), n < 0 ? '' : text(graph.op[n])]));
    if (nodes.length > 60) this.put('div', '... and ' + (nodes.length - 60) + ' more');
  }

  showPieces(step, n) {
    const m = step.memory, graph = step.graphs[0], own = [];
    for (let i = 0; i < m.owner.length; i++) if (m.owner[i] === n) own.push(i);
    this.put('h3', 'memory');
    this.rows([['live while it runs', {number: bytes(m.live[n])}]]);
    for (const i of own) {
      const place = m.in_place[i] ? ', in its argument\'s place' : '';
      this.rows([[bytes(m.bytes[i]) + ', until', this.nodeLink(graph, 0, m.last[i]), place]]);
    }
    this.link('all that is live here', () => this.go.moment(n));
  }

  showMoment(step, n) {
    const graph = step.graphs[0], live = step.liveAt(n), m = step.memory;
    this.clear();
    this.put('h2', bytes(m.live[n]) + ' live');
    this.rows([['while it runs', this.nodeLink(graph, 0, n)], ['peak', bytes(m.peak_bytes)]]);
    if (n !== m.peak_at) this.link('go to the peak', () => this.go.moment(m.peak_at));
    this.put('h3', live.length + ' pieces');
    this.rows(live.slice(0, 200).map(([owner, size, , , inPlace]) => {
      const module = owner < 0 ? '' : text(graph.module[owner]);
      return [this.nodeLink(graph, 0, owner), {number: bytes(size) + (inPlace ? ' *' : '')}, module];
    }));
    if (live.length > 200) this.put('div', '... and ' + (live.length - 200) + ' smaller ones');
    if (live.some((piece) => piece[4])) this.put('div', '* in the place of an argument that died: not counted twice');
  }

  showChanges(graph) {
    const c = graph.changes;
    this.clear();
    this.put('h2', data.name_before + ' → ' + data.name);
    this.rows(['same', 'added', 'removed', 'changed', 'moved', 'renamed'].map((word) => [word, {number: c[word]}]));
    if (c.explanations.length) this.put('h3', 'what it amounts to');
    for (const e of c.explanations) this.put('div', e.text + (e.where ? '  [' + e.where + ']' : ''));
  }
}
