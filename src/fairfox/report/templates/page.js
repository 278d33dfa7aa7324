"use strict";
(() => {
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("page-data").textContent);
  const byId = (id) => document.getElementById(id);

  /* --- words: text from the table only ever becomes text --------------------------------------------------- */

  function make(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children.map((child) => (child instanceof Node ? child : document.createTextNode(String(child)))));
    return node;
  }

  /* --- charts ---------------------------------------------------------------------------------------------- */

  const drawn = new Map(); // id -> {view, finalize, width}
  let deltaInChart = null;

  function colour(name) {
    return getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  }

  function chartConfig(width) {
    const [ink, soft, faint, rule] = ["ink", "soft", "faint", "rule"].map(colour);
    const font = getComputedStyle(document.body).fontFamily;
    const named = { limit: "ink", zero: "soft", error: "ink", words: "ink" };
    const styles = {};
    for (const name of ["flagged", "within", "first", "second", ...Object.keys(named)])
      styles[name] = { color: colour(named[name] ?? name) };
    return {
      background: "transparent",
      padding: { left: 0, right: 6, top: 4, bottom: 2 },
      font,
      style: styles,
      range: { category: [colour("first"), colour("second"), colour("flagged"), colour("within")] },
      view: { stroke: null },
      title: { color: ink, fontSize: 13, fontWeight: 600, anchor: "start", offset: 6, limit: Math.round(0.8 * width) },
      axis: {
        labelColor: soft, titleColor: soft, gridColor: faint, domainColor: rule, tickColor: rule,
        labelFontSize: 12, titleFontSize: 12, titleFontWeight: 400, titlePadding: 8,
      },
      axisY: { labelLimit: width < 520 ? 104 : 240 },
      legend: { labelColor: soft, titleColor: soft, labelFontSize: 12, orient: "top", title: null },
    };
  }

  /** Return a copy of a spec whose plots are `size` wide. */
  function sized(spec, size) {
    const out = { ...spec };
    delete out.config;
    if (out.vconcat) out.vconcat = out.vconcat.map((part) => sized(part, size));
    if (out.layer || out.mark) out.width = size;
    return out;
  }

  async function embed(node, spec, size, width) {
    return window.vegaEmbed(node, sized(spec, size), {
      actions: false, renderer: "svg", ast: true, config: chartConfig(width), tooltip: false,
    });
  }

  /** Draw twice: the first drawing says how much room axes and labels take. */
  async function draw(node) {
    const spec = data.charts[node.dataset.chart];
    const width = node.clientWidth;
    if (!spec || !width || !window.vegaEmbed) return;
    const guess = Math.round(0.7 * width);
    drawn.get(node)?.finalize();
    const trial = await embed(node, spec, guess, width);
    const taken = node.querySelector("svg").getBoundingClientRect().width - guess;
    trial.finalize();
    const size = Math.max(60, Math.floor(width - taken) - 1);
    const made = await embed(node, spec, size, width);
    const svg = node.querySelector("svg");
    svg.setAttribute("aria-hidden", "true"); // the words beside it say what it shows
    svg.removeAttribute("role");
    drawn.set(node, { view: made.view, finalize: () => made.finalize(), width });
    if (deltaInChart !== null) setDelta(made.view, deltaInChart);
    node.dataset.ready = "true";
  }

  function setDelta(view, value) {
    if (!Object.hasOwn(view.getState().signals, "delta")) return;
    view.signal("delta", value).runAsync();
  }

  let drawing = Promise.resolve();
  function drawSoon(nodes) {
    for (const node of nodes)
      drawing = drawing.then(() => new Promise((done) => setTimeout(done, 0))).then(() => draw(node))
        .catch((error) => console.error(error));
    return drawing;
  }
  const charts = () => [...document.querySelectorAll(".chart")];

  /** Draw what can be seen first, then the others while nothing else is to be done, so that they print too. */
  function drawAll() {
    const script = document.createElement("script");
    script.textContent = byId("chart-library").textContent; // read only now: the page is usable before
    document.head.append(script);
    const waiting = new Set(charts());
    const idle = window.requestIdleCallback ?? ((then) => setTimeout(then, 50));
    const seen = new IntersectionObserver((entries) => {
      const near = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target);
      take(near);
    }, { rootMargin: "300px" });
    function take(nodes) {
      const fresh = nodes.filter((node) => waiting.delete(node));
      fresh.forEach((node) => seen.unobserve(node));
      return drawSoon(fresh);
    }
    function rest() {
      const [next] = waiting;
      if (next) take([next]).then(() => idle(rest));
    }
    waiting.forEach((node) => seen.observe(node));
    idle(rest);
  }

  function watchWidth() {
    let waiting = 0;
    window.addEventListener("resize", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => drawSoon([...drawn.keys()].filter((node) => drawn.get(node).width !== node.clientWidth)), 150);
    });
  }

  /* --- light and dark --------------------------------------------------------------------------------------- */

  function themes() {
    const button = byId("theme");
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
    function tell() {
      button.textContent = isDark() ? "Light" : "Dark";
      button.setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
    }
    button.hidden = false;
    button.removeAttribute("aria-pressed");
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      tell();
      drawSoon([...drawn.keys()]);
    });
    system.addEventListener("change", () => {
      tell();
      drawSoon([...drawn.keys()]);
    });
    tell();
  }

  /* --- delta ------------------------------------------------------------------------------------------------ */

  let showPeople = () => {};
  let position = data.slider ? data.slider.start : 0;

  function slider() {
    const input = byId("delta");
    if (!input || !data.slider) return;
    const s = data.slider;
    function update() {
      position = Number(input.value);
      input.dataset.delta = String(s.deltas[position]);
      input.setAttribute("aria-valuetext", `delta ${s.words[position]}`);
      byId("delta-shown").textContent = s.words[position];
      const count = byId("flagged-count");
      count.dataset.count = String(s.flagged[position]);
      count.textContent = s.flagged[position].toLocaleString("en-US");
      byId("flagged-share").textContent = percent(s.shares[position]);
      byId("delta-own").hidden = position === s.start;
      document.querySelectorAll("[data-slider-group]").forEach((row) => {
        const group = s.groups[Number(row.dataset.sliderGroup)];
        row.querySelector(".count").textContent = group.flagged[position].toLocaleString("en-US");
        row.querySelector(".share").textContent = percent(group.shares[position]);
      });
      deltaInChart = s.deltas[position] * s.scale;
      for (const { view } of drawn.values()) setDelta(view, deltaInChart);
      showPeople();
    }
    byId("delta-own").addEventListener("click", () => {
      input.value = String(s.start);
      update();
      input.focus();
    });
    input.addEventListener("input", update);
    input.disabled = false;
    input.value = String(s.start); // browsers bring back what was there before a reload
    update();
  }

  function percent(share) {
    return share === null ? "unknown" : `${(100 * share).toFixed(1)} %`;
  }

  /* --- people ----------------------------------------------------------------------------------------------- */

  function people() {
    const table = byId("people");
    if (!table) return;
    const body = table.tBodies[0];
    const rows = [...body.querySelectorAll("tr.person")].map((row, index) => ({
      row, person: data.people.rows[index], index, words: row.textContent.toLowerCase(), detail: null,
    }));
    const filter = byId("people-filter");
    const shown = byId("people-shown");

    showPeople = () => {
      const wanted = filter.value.trim().toLowerCase();
      let visible = 0;
      let flagged = 0;
      for (const one of rows) {
        const over = !data.slider || position < one.person.until;
        const seen = over && one.words.includes(wanted);
        flagged += over;
        visible += seen;
        one.row.hidden = !seen;
        if (one.detail) one.detail.hidden = !seen || !isOpen(one);
      }
      const total = data.slider ? data.slider.flagged[position] : data.people.flagged;
      const listed = Math.min(total, data.people.flagged);
      const others = total > listed ? ". People who would be flagged at a smaller delta are not on this page." : "";
      shown.textContent = countWords(visible, flagged, listed) + others;
    };

    function countWords(visible, flagged, total) {
      const of = wordsOf(total);
      if (visible < flagged) return `${visible.toLocaleString("en-US")} shown that match, of ${of}`;
      if (flagged < total) return `${visible.toLocaleString("en-US")} shown, those with the highest scores, of ${of}`;
      return total === 0 ? "Nobody is flagged at this delta" : `${of}, all shown`;
    }
    const wordsOf = (count) => (count === 1 ? "1 flagged person" : `${count.toLocaleString("en-US")} flagged people`);
    const isOpen = (one) => one.row.querySelector("button").getAttribute("aria-expanded") === "true";

    for (const one of rows) {
      const button = one.row.querySelector("button");
      button.addEventListener("click", () => {
        const open = !isOpen(one);
        button.setAttribute("aria-expanded", String(open));
        one.row.classList.toggle("opened", open);
        if (!one.detail) {
          one.detail = detail(one.person, one.row.cells.length);
          one.row.after(one.detail);
        }
        one.detail.hidden = !open;
      });
    }
    filter.addEventListener("input", showPeople);

    const headings = [...table.querySelectorAll("thead th")];
    headings.forEach((heading, column) => {
      const button = heading.querySelector("button[data-sort]");
      if (!button) return;
      button.addEventListener("click", () => {
        const numeric = heading.classList.contains("n");
        const before = heading.getAttribute("aria-sort");
        const up = before ? before === "descending" : !numeric; // numbers: the largest first
        headings.forEach((each) => each.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", up ? "ascending" : "descending");
        rows.sort((a, b) => compared(a.person.sort[column], b.person.sort[column], up) || a.index - b.index);
        for (const one of rows) body.append(one.row, ...(one.detail ? [one.detail] : []));
      });
    });
    byId("people-tools").hidden = false;
    byId("people-cut")?.classList.add("only-printed"); // the words beside the filter say it, whatever the delta
    window.addEventListener("beforeprint", () => {
      const seen = [...body.querySelectorAll("tr.person")].filter((row) => !row.hidden);
      seen.forEach((row, index) => {
        const out = index >= data.people.most_printed;
        row.classList.toggle("unprinted", out);
        if (row.nextElementSibling?.matches("tr.detail")) row.nextElementSibling.classList.toggle("unprinted", out);
      });
      const left = seen.length - data.people.most_printed;
      byId("people-unprinted").textContent = left > 0 ? `And ${left.toLocaleString("en-US")} more on the page itself.` : "";
    });
    showPeople();
  }

  /** Order two values; who has none comes last in both directions. */
  function compared(a, b, up) {
    if (a === null || b === null) return (a === null) - (b === null);
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
    return up ? order : -order;
  }

  function detail(person, columns) {
    const card = make("div", { class: "person-card" }, make("h3", {}, person.title));
    const facts = make("dl");
    for (const fact of person.facts) {
      const term = make("dt", fact.key ? { class: fact.key === "after" ? "key to" : "key" } : {}, fact.label);
      facts.append(term, make("dd", {}, fact.words));
    }
    card.append(facts);
    if (person.range) card.append(range(person.range));
    if (person.features) card.append(features(person.features));
    for (const note of person.notes) card.append(make("p", { class: "soft" }, note));
    return make("tr", { class: "detail" }, make("td", { colspan: columns }, card));
  }

  /** Return a line from 0 to 1 with the prediction before and after, and the interval of the latter. */
  function range(values) {
    const line = make("div", { class: "range", "aria-hidden": "true" }, make("i", { class: "line" }));
    const at = (value) => `${100 * Math.min(1, Math.max(0, value))}%`;
    if (values.lower !== null && values.upper !== null) {
      const interval = make("i", { class: "interval" });
      interval.style.left = at(values.lower);
      interval.style.right = `calc(100% - ${at(values.upper)})`;
      line.append(interval);
    }
    for (const side of ["before", "after"]) {
      const dot = make("i", { class: `dot ${side}` });
      dot.style.left = at(values[side]);
      line.append(dot);
    }
    return line;
  }

  function features(shown) {
    const head = make("tr", {}, ...shown.columns.map((column) =>
      make("th", { scope: "col", ...(column.numeric ? { class: "n" } : {}) }, column.label)));
    const body = make("tbody");
    for (const [changed, name, ...words] of shown.rows) {
      const line = make("tr", changed ? { class: "changed" } : {}, make("th", { scope: "row" }, name));
      words.forEach((word, index) => {
        const column = shown.columns[index + 1];
        const kinds = [column.numeric ? "n" : "", column.after ? "after" : ""].join(" ").trim();
        line.append(make("td", kinds ? { class: kinds } : {}, word));
      });
      body.append(line);
    }
    return make("table", {}, make("thead", {}, head), body);
  }

  /* --- contents: where the reader is ------------------------------------------------------------------------ */

  function contents() {
    const links = [...document.querySelectorAll("nav.contents a")];
    const sections = links.map((link) => byId(link.getAttribute("href").slice(1)));
    if (!links.length) return;
    const mark = () => {
      const index = sections.findLastIndex((section) => section.getBoundingClientRect().top < 160);
      links.forEach((link, k) => (k === Math.max(index, 0) ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
    };
    document.addEventListener("scroll", mark, { passive: true });
    mark();
  }

  function printing() {
    window.addEventListener("beforeprint", () => {
      // where a chart is not drawn yet, its numbers are printed
      for (const each of document.querySelectorAll("details.method:not([open]), figure:not(:has(.chart[data-ready])) details:not([open])")) {
        each.open = true;
        each.dataset.printed = "true";
      }
    });
    window.addEventListener("afterprint", () => {
      for (const each of document.querySelectorAll("details[data-printed]")) {
        each.open = false;
        delete each.dataset.printed; // what the reader opens from now on stays open
      }
    });
  }

  themes();
  slider();
  people();
  contents();
  printing();
  root.dataset.ready = "true";
  window.addEventListener("load", () => {
    watchWidth();
    requestAnimationFrame(() => setTimeout(drawAll, 0));
  });
})();
