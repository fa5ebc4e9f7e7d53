"use strict";
/* The stride explorer, chart tooltips and the theme switch. Text from the run reaches the page only
   as text nodes, never as markup, and the policy of the page forbids network use. */
(() => {
  const byId = (id) => document.getElementById(id);
  const make = (tag, className, ...children) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  };
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const group = (value) => value.toLocaleString("en-US");
  const MINUS = "\u2212";
  const signed = (value, digits = 2) => {
    if (value === null || value === undefined) return "n/a";
    const text = Math.abs(value).toFixed(digits);
    if (Number(text) === 0) return text;
    return (value > 0 ? "+" : MINUS) + text;
  };
  const plain = (value, digits = 2) =>
    value === null || value === undefined ? "n/a" : value.toFixed(digits).replace("-", MINUS);

  /* ---- theme ---------------------------------------------------------------------------- */
  const THEMES = ["auto", "light", "dark"];
  const themeButton = byId("theme");
  const setTheme = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    themeButton.textContent = `Theme: ${theme}`;
    themeButton.dataset.value = theme;
  };
  themeButton.hidden = false;
  themeButton.addEventListener("click", () => {
    setTheme(THEMES[(THEMES.indexOf(themeButton.dataset.value) + 1) % THEMES.length]);
  });
  setTheme("auto");

  /* ---- tooltip, shared by charts and tokens --------------------------------------------- */
  const tip = byId("tip");
  const showTip = (target) => {
    tip.textContent = target.dataset.tip;
    tip.hidden = false;
    const box = target.getBoundingClientRect();
    const own = tip.getBoundingClientRect();
    const left = Math.min(
      Math.max(8, box.left + box.width / 2 - own.width / 2),
      document.documentElement.clientWidth - own.width - 8,
    );
    const above = box.top - own.height - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above < 8 ? box.bottom + 8 : above}px`;
  };
  const hideTip = () => { tip.hidden = true; };
  const tipTarget = (event) => (event.target.closest ? event.target.closest("[data-tip]") : null);
  for (const name of ["pointerover", "focusin"]) {
    document.addEventListener(name, (event) => {
      const target = tipTarget(event);
      if (target) showTip(target);
      else if (name === "pointerover") hideTip();
    });
  }
  document.addEventListener("focusout", hideTip);
  document.addEventListener("scroll", hideTip, { passive: true, capture: true });

  /* ---- charts: one tab stop each, arrow keys walk the marks ----------------------------- */
  for (const chart of document.querySelectorAll("svg.chart")) {
    const marks = [...chart.querySelectorAll("[data-tip]")];
    marks.forEach((mark, index) => mark.setAttribute("tabindex", index === 0 ? "0" : "-1"));
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const at = marks.indexOf(document.activeElement);
      if (!step || at < 0) return;
      event.preventDefault();
      const next = marks[Math.min(Math.max(at + step, 0), marks.length - 1)];
      marks[at].setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  }

  /* ---- print: paper cannot open a disclosure -------------------------------------------- */
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details.for-print:not([open])")];
    for (const node of closed) node.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const node of closed) node.open = false;
  });

  /* ---- explorer ------------------------------------------------------------------------- */
  const data = JSON.parse(byId("explorer-data").textContent);
  const strides = data.strides;
  if (!strides) return;
  const BIN_EDGES = data.bins;
  const FLOW_PAGE = 192;
  const LIST_PAGE = 24;
  const oracleAt = data.rankers.indexOf("oracle");
  const state = { ranker: 0, order: "reading", search: "", page: 0, selected: -1 };

  const chosen = (stride, ranker) => stride.choice[ranker];
  const nllOf = (stride, rank) => (rank < 0 ? stride.base : stride.nll[rank]);
  const totalOf = (values) => (values && !values.includes(null) ? sum(values) : null);
  const gainOf = (stride, ranker) => {
    const base = totalOf(stride.base);
    const other = totalOf(nllOf(stride, chosen(stride, ranker)));
    return base === null || other === null ? null : base - other;
  };
  const regretOf = (stride, ranker) => {
    const best = gainOf(stride, oracleAt);
    const own = gainOf(stride, ranker);
    return best === null || own === null ? null : best - own;
  };
  const tokenGain = (stride, rank, at) => {
    const other = nllOf(stride, rank);
    if (!other || other[at] === null || stride.base[at] === null) return null;
    return stride.base[at] - other[at];
  };
  const binOf = (gain) => {
    if (gain === null) return "gx";
    const size = BIN_EDGES.filter((edge) => Math.abs(gain) >= edge).length;
    return size === 0 ? "g0" : (gain > 0 ? "p" : "m") + size;
  };

  /* A character split over several tokens shows once, coloured by the sum of its tokens. */
  const tokenSpans = (stride, rank) => {
    const spans = [];
    let at = 0;
    while (at < stride.text.length) {
      let end = at + 1;
      while (end < stride.text.length && stride.text[end] === "") end += 1;
      const gains = [];
      for (let index = at; index < end; index += 1) gains.push(tokenGain(stride, rank, index));
      const gain = gains.includes(null) ? null : sum(gains);
      const piece = stride.text[at];
      const word = piece.trimStart();
      const space = word ? piece.slice(0, piece.length - word.length) : "";
      const span = make("span", `tok ${binOf(gain)}`, piece === "" ? "\u00b7" : word || piece);
      if (!word && piece.includes("\n")) span.classList.add("nl");
      const count = end - at > 1 ? ` (${end - at} tokens)` : "";
      const shown = JSON.stringify(piece);
      const other = nllOf(stride, rank);
      const part = (values) => (values ? totalOf(values.slice(at, end)) : null);
      span.dataset.tip =
        `${shown}${count}: ${plain(part(stride.base))} \u2192 ${plain(part(other))} nat, ` +
        `gain ${signed(gain)}`;
      if (space) spans.push(space);
      spans.push(span);
      at = end;
    }
    return spans;
  };

  const label = (stride) => {
    const last = stride.begin + stride.base.length - 1;
    const tokens = stride.begin === last ? `token ${group(last)}` :
      `tokens ${group(stride.begin)}\u2013${group(last)}`;
    return `stride ${group(stride.number)}, ${tokens}`;
  };
  const haystack = (stride) => {
    const titles = stride.passage.map((at) => data.passages[at][2]).join("\n");
    return `${stride.query}${stride.text.join("")}\n${titles}`.toLowerCase();
  };

  const matches = () => {
    const wanted = state.search.trim().toLowerCase();
    let found = strides.map((_, index) => index);
    if (wanted) found = found.filter((index) => haystack(strides[index]).includes(wanted));
    const by = (key, keep) => {
      const scored = found.map((index) => [index, key(strides[index])]);
      const kept = scored.filter(([, value]) => value !== null && keep(value));
      return kept.sort((a, b) => b[1] - a[1] || a[0] - b[0]).map(([index]) => index);
    };
    if (state.order === "gains") return by((s) => gainOf(s, state.ranker), (value) => value > 0);
    if (state.order === "losses") {
      return by((s) => { const g = gainOf(s, state.ranker); return g === null ? null : -g; },
        (value) => value > 0);
    }
    if (state.order === "disagree") {
      found = found.filter((index) =>
        chosen(strides[index], state.ranker) !== chosen(strides[index], oracleAt));
      return by((s) => regretOf(s, state.ranker), () => true);
    }
    return found;
  };

  const view = byId("strides");
  const panel = byId("detail");
  const status = byId("explorer-status");

  const strideNode = (index, tag) => {
    const stride = strides[index];
    const node = make(tag, "stride", ...tokenSpans(stride, chosen(stride, state.ranker)));
    node.dataset.i = index;
    node.setAttribute("role", "button");
    node.setAttribute("tabindex", "-1");
    node.setAttribute("aria-pressed", "false");
    return node;
  };

  const drawFlow = (found) => {
    const parts = [];
    let paragraph = null;
    found.forEach((index, position) => {
      const stride = strides[index];
      const before = position > 0 ? strides[found[position - 1]] : null;
      const goesOn = before && before.stream === stride.stream && before.number + 1 === stride.number;
      if (!goesOn) {
        const place = `${data.streams[stride.stream]} \u00b7 from token ${group(stride.begin)}`;
        parts.push(make("h4", "place", place));
        paragraph = make("p", "flow", make("span", "before", stride.query));
        parts.push(paragraph);
      }
      paragraph.append(strideNode(index, "span"));
    });
    view.replaceChildren(...parts);
  };

  /* The last words of a query on one line, cut between words. */
  const tail = (query) => {
    const flat = query.replace(/\s+/g, " ");
    if (flat.length <= 120) return flat;
    const cut = flat.slice(-120);
    return `\u2026${cut.slice(Math.max(0, cut.indexOf(" ")))}`;
  };

  const drawList = (found) => {
    const items = found.map((index) => {
      const stride = strides[index];
      const rank = chosen(stride, state.ranker);
      const title = rank < 0 ? "no passage" : data.passages[stride.passage[rank]][2] || "untitled";
      const gain = gainOf(stride, state.ranker);
      const value = make("span", `gain ${gain > 0 ? "up" : "down"}`, signed(gain));
      const head = make("div", "card-head",
        make("span", "where", `${data.streams[stride.stream]} \u00b7 ${label(stride)}`), value);
      const text = make("div", "card-text",
        make("span", "before", tail(stride.query)), strideNode(index, "span"));
      const from = make("div", "card-from", rank < 0 ? title : `rank ${rank}: ${title}`);
      return make("li", "card", head, text, from);
    });
    view.replaceChildren(make("ol", "cards", ...items));
  };

  const draw = () => {
    const found = matches();
    const flowing = state.order === "reading" && !state.search.trim();
    const size = flowing ? FLOW_PAGE : LIST_PAGE;
    const pages = Math.max(1, Math.ceil(found.length / size));
    state.page = Math.min(Math.max(state.page, 0), pages - 1);
    const shown = found.slice(state.page * size, (state.page + 1) * size);
    hideTip();
    if (!shown.length) {
      const words = state.order === "disagree" && state.ranker === oracleAt
        ? "The oracle never disagrees with itself: choose another ranker."
        : "No stride matches.";
      view.replaceChildren(make("p", "empty", words));
    } else if (flowing) drawFlow(shown);
    else drawList(shown);
    status.textContent = `${group(found.length)} of ${group(strides.length)} strides shown here`;
    byId("page").textContent = `Page ${state.page + 1} of ${group(pages)}`;
    byId("prev").disabled = state.page === 0;
    byId("next").disabled = state.page >= pages - 1;
    const nodes = strideNodes();
    const current = nodes.find((node) => Number(node.dataset.i) === state.selected);
    if (current) markSelected(current);
    else if (nodes.length) nodes[0].setAttribute("tabindex", "0");
    if (state.selected >= 0) drawDetail(state.selected);
  };

  const strideNodes = () => [...view.querySelectorAll(".stride")];
  const markSelected = (node) => {
    for (const other of view.querySelectorAll(".stride")) {
      other.setAttribute("tabindex", other === node ? "0" : "-1");
      other.setAttribute("aria-pressed", String(other === node));
    }
  };

  /* ---- one stride in full --------------------------------------------------------------- */
  const words = (text) => new Set((text.toLowerCase().match(/[\p{L}\p{N}]{4,}/gu) || []));
  const marked = (text, target, query) => {
    const out = document.createDocumentFragment();
    let end = 0;
    for (const match of text.matchAll(/[\p{L}\p{N}]{4,}/gu)) {
      const word = match[0].toLowerCase();
      const kind = target.has(word) ? "in-target" : query.has(word) ? "in-query" : "";
      if (!kind) continue;
      out.append(text.slice(end, match.index), make(kind === "in-target" ? "mark" : "span", kind,
        match[0]));
      end = match.index + match[0].length;
    }
    out.append(text.slice(end));
    return out;
  };

  const cell = (tag, text, className) => {
    const node = make(tag, className, text);
    if (tag === "th") node.scope = className === "row" ? "row" : "col";
    return node;
  };
  const tokenTable = (stride, rank) => {
    const head = make("tr", "", cell("th", "token"), cell("th", "baseline", "num"),
      cell("th", "with passage", "num"), cell("th", "gain", "num"));
    const other = nllOf(stride, rank);
    const rows = stride.text.map((piece, at) => {
      const gain = tokenGain(stride, rank, at);
      const name = make("span", `tok ${binOf(gain)}`,
        piece === "" ? "\u00b7" : piece.replace(/\n/g, "\u21b5"));
      const first = make("th", "row", name);
      first.scope = "row";
      return make("tr", "", first, cell("td", plain(stride.base[at]), "num"),
        cell("td", other ? plain(other[at]) : "n/a", "num"), cell("td", signed(gain), "num"));
    });
    const total = make("tr", "total", cell("th", "sum, nat", "row"),
      cell("td", plain(totalOf(stride.base)), "num"), cell("td", plain(totalOf(other)), "num"),
      cell("td", signed(gainOf(stride, state.ranker)), "num"));
    return make("table", "tokens", make("thead", "", head), make("tbody", "", ...rows, total));
  };

  const passageNode = (at, target, query) => {
    const [row, id, title, text] = data.passages[at];
    const box = make("div", "passage");
    const name = make("p", "passage-id", `passage ${group(row)}${id ? `, id ${id}` : ""}`);
    if (text === null) {
      return box.append(name, make("p", "missing", data.missing_text)), box;
    }
    const body = make("p", "passage-text");
    body.append(marked(text, target, query));
    box.append(make("p", "passage-title", title || "(no title)"), body, name);
    return box;
  };

  const candidateRow = (stride, rank, sets, open) => {
    const item = make("li", "candidate");
    const marks = data.rankers.filter((_, index) => chosen(stride, index) === rank)
      .map((name) => make("span", `chip chip-${name}`, data.ranker_names[name] || name));
    const base = totalOf(stride.base);
    const own = totalOf(stride.nll[rank]);
    const gain = base === null || own === null ? null : base - own;
    const title = data.passages[stride.passage[rank]][2];
    const button = make("button", "candidate-head",
      make("span", "rank", String(rank)),
      make("span", "title", title || `passage ${group(data.passages[stride.passage[rank]][0])}`,
        " ", ...marks, stride.duplicate[rank] >= 0
          ? make("span", "chip", `same text as rank ${stride.duplicate[rank]}`) : null),
      make("span", "num", make("small", "", "score"), plain(stride.score[rank])),
      make("span", "num", make("small", "", "rank NLL"), plain(stride.rank_nll[rank])),
      make("span", "num", make("small", "", "target NLL"), plain(own)),
      make("span", `num gain ${gain > 0 ? "up" : "down"}`, make("small", "", "gain"),
        signed(gain)));
    button.type = "button";
    button.setAttribute("aria-expanded", String(open));
    const body = make("div", "candidate-body");
    const fill = () => body.replaceChildren(passageNode(stride.passage[rank], ...sets));
    if (open) fill();
    body.hidden = !open;
    button.addEventListener("click", () => {
      body.hidden = !body.hidden;
      if (!body.hidden && !body.childNodes.length) fill();
      button.setAttribute("aria-expanded", String(!body.hidden));
    });
    item.append(button, body);
    return item;
  };

  const drawDetail = (index) => {
    const stride = strides[index];
    const rank = chosen(stride, state.ranker);
    const sets = [words(stride.text.join("")), words(stride.query)];
    const close = make("button", "close", "Close");
    close.type = "button";
    close.addEventListener("click", closeDetail);
    const heading = make("h3", "", label(stride));
    heading.id = "detail-title";
    const ranker = data.rankers[state.ranker];
    const names = data.ranker_names[ranker] || ranker;
    const what = rank < 0
      ? `No passage was retrieved (${stride.status}); the baseline stands.`
      : `${names} takes rank ${rank}: gain ${signed(gainOf(stride, state.ranker))} nat over no ` +
        "retrieval.";
    const list = make("ol", "candidates");
    stride.passage.forEach((_, at) => list.append(candidateRow(stride, at, sets, at === rank)));
    const parts = [
      make("div", "detail-head", heading, close),
      make("p", "where", data.streams[stride.stream]),
      make("p", "what", what),
      make("h4", "", `Query (at most ${group(data.query_length)} tokens)`),
      make("p", "query", stride.query || "(empty)"),
      make("h4", "", "Target"),
      tokenTable(stride, rank),
      make("h4", "", `${group(stride.passage.length)} candidates`),
      stride.passage.length ? make("p", "where", "Passages: ",
        make("mark", "", "word of the target"), ", ", make("span", "in-query", "word of the query"),
        ".") : null,
      stride.passage.length ? list : make("p", "empty", "None."),
    ];
    panel.replaceChildren(...parts.filter((part) => part !== null));
    panel.classList.add("open");
    byId("spoken").textContent = `${label(stride)}. ${what}`;
  };
  const closeDetail = () => {
    panel.classList.remove("open");
    const node = view.querySelector(`.stride[data-i="${state.selected}"]`);
    if (node) node.focus();
  };
  const select = (node, focus) => {
    state.selected = Number(node.dataset.i);
    markSelected(node);
    drawDetail(state.selected);
    if (focus) node.focus();
  };

  view.addEventListener("click", (event) => {
    const node = event.target.closest(".stride") ||
      (event.target.closest(".card") || view).querySelector(".card .stride");
    if (node && event.target.closest(".stride, .card")) select(node, true);
  });
  view.addEventListener("keydown", (event) => {
    const node = event.target.closest(".stride");
    if (!node) return;
    const nodes = strideNodes();
    const at = nodes.indexOf(node);
    const goal = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1,
      Home: 0, End: nodes.length - 1 }[event.key];
    if (goal !== undefined) {
      event.preventDefault();
      const next = nodes[Math.min(Math.max(goal, 0), nodes.length - 1)];
      next.scrollIntoView({ block: "nearest" });
      select(next, true);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      select(node, true);
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && panel.classList.contains("open")) closeDetail();
  });

  const control = (id, event, apply) => byId(id).addEventListener(event, (happened) => {
    apply(happened.target);
    draw();
  });
  control("ranker", "change", (node) => { state.ranker = Number(node.value); });
  control("order", "change", (node) => { state.order = node.value; state.page = 0; });
  control("search", "input", (node) => { state.search = node.value; state.page = 0; });
  control("prev", "click", () => { state.page -= 1; });
  control("next", "click", () => { state.page += 1; });
  byId("explorer-controls").addEventListener("submit", (event) => event.preventDefault());
  byId("explorer-controls").hidden = false;
  draw();
})();
