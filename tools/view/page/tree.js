// The tree of modules, left: what a module below holds is made when it is opened.
'use strict';

class Branch {
  constructor(name, path) {
    Object.assign(this, {name, path, count: 0, spent: 0, parts: new Map()});
  }
}

function treeOf(graph) {
  const root = new Branch('', ''), known = new Map();
  const chainOf = (module) => {
    const chain = [root];
    for (const name of module === '' ? [] : module.split('.')) {
      const above = chain[chain.length - 1];
      if (!above.parts.has(name)) above.parts.set(name, new Branch(name, above.path ? above.path + '.' + name : name));
      chain.push(above.parts.get(name));
    }
    return chain;
  };
  for (let n = 0; n < graph.count; n++) {
    const module = graph.module[n];
    if (!known.has(module)) known.set(module, chainOf(text(module)));
    for (const branch of known.get(module)) {
      branch.count++;
      branch.spent += graph.spent?.[n] ?? 0;
    }
  }
  return root;
}

class Tree {
  constructor(element, onPick) {
    this.element = element;
    this.onPick = onPick;
    this.picked = null;
  }

  show(graph) {
    this.root = treeOf(graph);
    this.element.replaceChildren();
    this.add(this.element, this.root, 'all modules').click();
  }

  // A line, and below it an empty box that is filled at the first click on the twist.
  add(parent, branch, title) {
    const line = document.createElement('div'), below = document.createElement('div');
    line.className = 'branch';
    below.className = 'below';
    const twist = document.createElement('span'), share = document.createElement('span');
    twist.className = 'twist';
    twist.textContent = branch.parts.size ? '▸' : '';
    share.className = 'share';
    share.textContent = this.root.spent > 0 ? (100 * branch.spent / this.root.spent).toFixed(1) + ' %' : branch.count;
    share.title = branch.count + ' nodes' + (this.root.spent > 0 ? ', ' + duration(branch.spent) : '');
    line.append(twist, title, share);
    parent.append(line, below);
    const toggle = () => {
      const open = below.childElementCount > 0;
      twist.textContent = branch.parts.size ? (open ? '▸' : '▾') : '';
      if (open) below.replaceChildren();
      else for (const part of branch.parts.values()) this.add(below, part, part.name);
    };
    line.addEventListener('click', (event) => {
      if (event.target === twist || below.childElementCount === 0) toggle();
      if (event.target !== twist) this.pick(line, branch);
    });
    return line;
  }

  pick(line, branch) {
    this.picked?.classList.remove('picked');
    this.picked = line;
    line.classList.add('picked');
    this.onPick(branch.path);
  }
}
