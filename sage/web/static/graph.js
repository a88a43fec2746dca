// The knowledge graph: a concept, what lies around it, and the passages behind every edge.
import { html, api, address, number, Source, useEffect, useLoaded, useState, Wrong } from "./lib.js";

const words = (relation) => relation.replaceAll("_", " ");
const SIGNS = ["any sign", "contradicted", "positive", "negative"];

const papersOf = (edge) => [...edge.evidence, ...edge.against];
const keyOf = (paper) => paper.doi || paper.pmid || paper.title;

function download(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

// What is drawn as a file of its own: the page's colors go along.
function picture() {
  const drawn = document.querySelector(".drawing"), copy = drawn.cloneNode(true), style = getComputedStyle(drawn);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("color", style.color);
  const ground = getComputedStyle(document.documentElement).backgroundColor;
  for (const circle of copy.querySelectorAll("circle")) circle.setAttribute("stroke", ground);
  for (const text of copy.querySelectorAll("text")) { text.setAttribute("fill", style.color); text.setAttribute("font-family", "sans-serif"); text.setAttribute("font-size", "15"); }
  const back = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [key, value] of Object.entries({ width: 1000, height: 1000, fill: ground })) back.setAttribute(key, value);
  copy.prepend(back);
  return new XMLSerializer().serializeToString(copy);
}

function Drawing({ data, chosen, choose, move }) {
  const near = new Map(data.nodes.map((node, n) => [n, node]));
  const at = (v) => 500 + 0.44 * v;
  return html`<svg viewBox="0 0 1000 1000" class="drawing" role="group" aria-label=${`what lies around ${data.name}`}>
    ${data.edges.map((edge, n) => { const s = near.get(edge.s), t = near.get(edge.t);
      return html`<line key=${`e${n}`} data-edge=${n} x1=${at(s.x)} y1=${at(s.y)} x2=${at(t.x)} y2=${at(t.y)} stroke="currentColor" stroke-opacity=${chosen === n ? 1 : 0.35}
        stroke-width=${1 + 4 * edge.belief} stroke-dasharray=${edge.against.length ? "8 6" : null} onClick=${() => choose(n)}/>`; })}
    ${data.nodes.map((node, n) => data.seen.has(n) && html`<g key=${node.id} data-node=${node.id} transform=${`translate(${at(node.x)} ${at(node.y)})`} onClick=${() => move(node.id)}>
      <circle r=${node.id === data.focus ? 13 : 8} fill=${data.colors[node.type]} stroke="var(--ground)" stroke-width="2"/>
      <text y="-14" text-anchor="middle" class="name">${node.name.length > 26 ? `${node.name.slice(0, 25)}…` : node.name}</text></g>`)}
  </svg>`;
}

function Edge({ edge, data, move }) {
  const years = edge.years[0] ? `${edge.years[0]} to ${edge.years[1]}` : "no year";
  return html`<section class="panel" id="edge" aria-live="polite"><h3>${data.nodes[edge.s].name} ${words(edge.relation)} ${data.nodes[edge.t].name}</h3>
    <p class="small soft">belief ${number(edge.belief)}, ${edge.polarity}${edge.negated ? ", negated" : ""}, ${years}</p>
    ${edge.evidence.map((item) => html`<${Source} of=${{ ...item, quote: item.text }}/>`)}
    ${edge.against.map((item) => html`<${Source} of=${{ ...item, quote: item.text }} against/>`)}
    <p class="small">Center on ${[edge.s, edge.t].map((n) => html`<button type="button" class="plain" onClick=${() => move(data.nodes[n].id)}>${data.nodes[n].name}</button> `)}</p>
    ${edge.more ? html`<p class="small soft">and ${edge.more} more</p>` : null}</section>`;
}

export function Graph({ query, go }) {
  const about = useLoaded("/api/graph").data;
  const runs = useLoaded("/api/runs").data;
  const [typed, setTyped] = useState("");
  const [found, setFound] = useState([]);
  const [year, setYear] = useState(0);
  const [type, setType] = useState("");
  const [sign, setSign] = useState(SIGNS[0]);
  const [since, setSince] = useState(0);
  const [paper, setPaper] = useState("");
  const [run, setRun] = useState("");
  const [paths, setPaths] = useState([]);
  const [data, setData] = useState(null);
  const [chosen, choose] = useState(null);
  const [error, setError] = useState("");
  const node = query.get("node");
  const move = (id) => go(`/graph?node=${encodeURIComponent(id)}`);
  useEffect(() => {
    if (!typed.trim()) { setFound([]); return undefined; }
    const stop = new AbortController();
    const wait = setTimeout(() => api(`/api/graph/find?q=${encodeURIComponent(typed)}`, { signal: stop.signal }).then(setFound, () => {}), 150);
    return () => { clearTimeout(wait); stop.abort(); };
  }, [typed]);
  useEffect(() => {
    if (!node) return undefined;
    const wait = setTimeout(() => api(`/api/graph/around?node=${encodeURIComponent(node)}&as_of=${year}`).then((all) => { setData(all); choose(null); setError(""); }, (e) => { setData(null); setError(e.message); }), 150);
    return () => clearTimeout(wait);
  }, [node, year]);
  useEffect(() => { if (run) api(`/api/graph/paths/${address(run)}`).then(setPaths, (e) => setError(e.message)); else setPaths([]); }, [run]);
  const fits = (edge) => (!type || [edge.s, edge.t].some((k) => data.nodes[k].type === type))
    && (!since || (edge.years[0] && edge.years[0] >= since)) && (!paper || papersOf(edge).some((item) => keyOf(item) === paper))
    && (sign === "any sign" || (sign === "contradicted" ? edge.against.length > 0 : edge.polarity === sign));
  const shown = data ? { ...data, edges: data.edges.filter(fits) } : null;
  const all = data && shown.edges.length === data.edges.length;
  if (shown) shown.seen = new Set(data.nodes.flatMap((item, n) => all || item.id === data.focus || shown.edges.some((edge) => edge.s === n || edge.t === n) ? [n] : []));
  const papers = data ? [...new Map(data.edges.flatMap(papersOf).map((item) => [keyOf(item), `${(item.title || keyOf(item) || "").slice(0, 60)}${item.year ? `, ${item.year}` : ""}`]))].sort((x, y) => x[1].localeCompare(y[1])) : [];
  const save = () => {
    const kept = [...shown.seen], place = new Map(kept.map((n, k) => [n, k]));
    const { seen, ...rest } = shown;
    download("graph.json", "application/json", JSON.stringify({ ...rest, as_of: year || null, filters: { type, sign, since, paper }, nodes: kept.map((n) => data.nodes[n]), edges: shown.edges.map((edge) => ({ ...edge, s: place.get(edge.s), t: place.get(edge.t) })) }, null, 1));
  };
  return html`<h1>${data ? data.name : "What the literature says"}</h1>
    ${about ? html`<p class="small soft">${about.nodes} concepts, ${about.edges} relations from ${about.documents} documents</p>` : null}
    <div class="row"><label class="stack">Find a concept <input id="concept" value=${typed} onInput=${(e) => setTyped(e.target.value)} onKeyDown=${(e) => { if (e.key === "Enter" && found.length) { move(found[0].id); setTyped(""); } }}/></label>
      <label class="stack">Paths of a run <select id="paths" value=${run} onChange=${(e) => setRun(e.target.value)}><option value="">none</option>${runs?.runs.map((item) => html`<option value=${item.name}>${item.prompt}</option>`)}</select></label></div>
    <ul class="parts">${found.map((item) => html`<li><span class="soft">${item.type}</span><button type="button" class="plain" onClick=${() => { move(item.id); setTyped(""); }}>${item.name}</button></li>`)}</ul>
    ${paths.length ? html`<ol class="small">${paths.map((item) => html`<li>${item.sentence}${item.contradicted ? html` <span class="pill warn">contradicted</span>` : null}<br/>${item.nodes.map((name) => html`<button type="button" class="plain" onClick=${() => move(name)}>${name}</button> `)}</li>`)}</ol>` : null}
    <${Wrong} error=${error}/>
    ${shown ? html`<div class="row">
        <label>As of <input type="range" id="year" min=${about?.first_year || 1990} max=${about?.last_year || 2030} value=${year || about?.last_year || 2030} onChange=${(e) => setYear(Number(e.target.value) >= (about?.last_year || 0) ? 0 : Number(e.target.value))}/> <output>${year || "today"}</output></label>
        <label>Type <select value=${type} onChange=${(e) => setType(e.target.value)}><option value="">any</option>${Object.keys(data.colors).map((t) => html`<option>${t}</option>`)}</select></label>
        <label>Sign <select id="sign" value=${sign} onChange=${(e) => setSign(e.target.value)}>${SIGNS.map((s) => html`<option>${s}</option>`)}</select></label>
        <label>First seen since <input id="since" type="number" size="5" min=${about?.first_year || 1900} max=${about?.last_year || 2100} placeholder="ever" value=${since || ""} onInput=${(e) => setSince(Number(e.target.value) || 0)}/></label>
        <label>Paper <select id="paper" value=${paper} onChange=${(e) => setPaper(e.target.value)}><option value="">any</option>${papers.map(([key, title]) => html`<option value=${key}>${title}</option>`)}</select></label>
        <span class="row tight small">Save what is shown: <button type="button" id="save-json" onClick=${save}>JSON</button><button type="button" id="save-svg" onClick=${() => download("graph.svg", "image/svg+xml", picture())}>SVG</button></span></div>
      <p class="small"><a id="concept-page" target="_blank" rel="noopener" href=${`/api/graph/concept?node=${encodeURIComponent(data.nodes.find((item) => item.id === data.focus)?.id || data.name)}&as_of=${year}`}>All papers on ${data.name}, for and against, by year</a></p>
      <p class="small soft" role="status" id="seen">${shown.edges.length} of ${data.edges.length} relations</p>
      <div class="split"><${Drawing} data=${shown} chosen=${chosen} choose=${choose} move=${move}/>
        <div>${chosen != null && shown.edges[chosen] ? html`<${Edge} edge=${shown.edges[chosen]} data=${shown} move=${move}/>` : null}
          <h3>Relations</h3><ul class="small" id="relations">${shown.edges.slice(0, 80).map((edge, n) => html`<li><button type="button" class="plain" onClick=${() => choose(n)}>${shown.nodes[edge.s].name} ${words(edge.relation)} ${shown.nodes[edge.t].name}</button> <span class="soft">${number(edge.belief)}</span>${edge.against.length ? html` <span class="pill warn">contradicted</span>` : null}</li>`)}</ul></div></div>
      <p class="small">${Object.entries(data.colors).map(([t, color]) => html`<span class="key"><svg width="12" height="12" aria-hidden="true"><circle cx="6" cy="6" r="6" fill=${color}/></svg> ${t} </span>`)}</p>` : null}`;
}
