// The knowledge graph: a concept, what lies around it, and the passages behind every edge.
import { html, api, address, number, Source, useEffect, useLoaded, useState, Wrong } from "./lib.js";

const words = (relation) => relation.replaceAll("_", " ");
const SIGNS = ["any sign", "contradicted", "positive", "negative"];

function Drawing({ data, chosen, choose, move }) {
  const near = new Map(data.nodes.map((node, n) => [n, node]));
  const at = (v) => 500 + 0.44 * v;
  return html`<svg viewBox="0 0 1000 1000" class="drawing" role="group" aria-label=${`what lies around ${data.name}`}>
    ${data.edges.map((edge, n) => { const s = near.get(edge.s), t = near.get(edge.t);
      return html`<line key=${`e${n}`} data-edge=${n} x1=${at(s.x)} y1=${at(s.y)} x2=${at(t.x)} y2=${at(t.y)} stroke="currentColor" stroke-opacity=${chosen === n ? 1 : 0.35}
        stroke-width=${1 + 4 * edge.belief} stroke-dasharray=${edge.against.length ? "8 6" : null} onClick=${() => choose(n)}/>`; })}
    ${data.nodes.map((node) => html`<g key=${node.id} data-node=${node.id} transform=${`translate(${at(node.x)} ${at(node.y)})`} onClick=${() => move(node.id)}>
      <circle r=${node.id === data.focus ? 13 : 8} fill=${data.colors[node.type]} stroke="var(--ground)" stroke-width="2"/>
      <text y="-14" text-anchor="middle" class="name">${node.name.length > 26 ? `${node.name.slice(0, 25)}…` : node.name}</text></g>`)}
  </svg>`;
}

function Edge({ edge, data }) {
  const years = edge.years[0] ? `${edge.years[0]} to ${edge.years[1]}` : "no year";
  return html`<section class="panel" id="edge" aria-live="polite"><h3>${data.nodes[edge.s].name} ${words(edge.relation)} ${data.nodes[edge.t].name}</h3>
    <p class="small soft">belief ${number(edge.belief)}, ${edge.polarity}${edge.negated ? ", negated" : ""}, ${years}</p>
    ${edge.evidence.map((item) => html`<${Source} of=${{ ...item, quote: item.text }}/>`)}
    ${edge.against.map((item) => html`<${Source} of=${{ ...item, quote: item.text }} against/>`)}
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
    && (sign === "any sign" || (sign === "contradicted" ? edge.against.length > 0 : edge.polarity === sign));
  const shown = data ? { ...data, edges: data.edges.filter(fits) } : null;
  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(shown, null, 1)], { type: "application/json" }));
    link.download = "graph.json";
    link.click();
    URL.revokeObjectURL(link.href);
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
        <button type="button" onClick=${save}>Save what is shown</button></div>
      <div class="split"><${Drawing} data=${shown} chosen=${chosen} choose=${choose} move=${move}/>
        <div>${chosen != null && shown.edges[chosen] ? html`<${Edge} edge=${shown.edges[chosen]} data=${shown}/>` : null}
          <h3>Relations</h3><ul class="small" id="relations">${shown.edges.slice(0, 80).map((edge, n) => html`<li><button type="button" class="plain" onClick=${() => choose(n)}>${shown.nodes[edge.s].name} ${words(edge.relation)} ${shown.nodes[edge.t].name}</button> <span class="soft">${number(edge.belief)}</span>${edge.against.length ? html` <span class="pill warn">contradicted</span>` : null}</li>`)}</ul></div></div>
      <p class="small">${Object.entries(data.colors).map(([t, color]) => html`<span class="key"><svg width="12" height="12" aria-hidden="true"><circle cx="6" cy="6" r="6" fill=${color}/></svg> ${t} </span>`)}</p>` : null}`;
}
