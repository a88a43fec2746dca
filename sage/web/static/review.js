// What waits for a person: a hypothesis in words, what is known of it, an edit shown as it is made.
import { html, api, address, number, only, Source, useEffect, useLoaded, useRef, useState, Wrong } from "./lib.js";

const LEVELS = ["high", "low"];
const CUTS = ["median", "tertile", "continuous"];
const WAYS = [["accept", "a", "Approve"], ["edit", "e", "Accept my edit"], ["response", "n", "Ask for another hypothesis"], ["ignore", "r", "Reject"]];

function Bars({ of }) {
  const rows = Object.entries(of.levels || {});
  const shares = Object.entries(of.quantiles || {});
  if (of.withheld) return html`<p class="said warn">${of.variable}: ${of.withheld}</p>`;
  const most = Math.max(1, ...rows.map(([, n]) => n));
  return html`<figure><figcaption class="small"><strong>${of.label || of.variable}</strong>
      <span class="soft"> ${of.kind}${of.unit ? `, ${of.unit}` : ""}; ${of.n} patients, ${Math.round(100 * (of.missing || 0))}% missing</span></figcaption>
    ${rows.length ? html`<table><tbody>${rows.map(([level, n]) => html`<tr><td>${level}</td><td class="n">${n}</td><td width="60%"><svg width="100%" height="10" aria-hidden="true"><rect width=${`${100 * n / most}%`} height="10" fill="currentColor" opacity=".55"/></svg></td></tr>`)}</tbody></table>` : null}
    ${shares.length ? html`<${Quantiles} of=${of} shares=${shares}/>` : null}
  </figure>`;
}

function Quantiles({ of, shares }) {
  const values = shares.map(([, value]) => value);
  const low = values[0], high = values[values.length - 1], span = high - low || 1;
  const at = (value) => 4 + 92 * (value - low) / span;
  const find = (name) => Object.fromEntries(shares)[name];
  const box = find("25%") != null && find("75%") != null;
  return html`<svg width="100%" height="44" role="img" aria-label=${`${of.label}: ${shares.map(([s, v]) => `${s} ${number(v)}`).join(", ")}`}>
    <line x1=${`${at(low)}%`} x2=${`${at(high)}%`} y1="14" y2="14" stroke="currentColor" opacity=".5"/>
    ${box ? html`<rect x=${`${at(find("25%"))}%`} width=${`${at(find("75%")) - at(find("25%"))}%`} y="6" height="16" fill="currentColor" opacity=".25"/>` : null}
    ${find("50%") != null ? html`<line x1=${`${at(find("50%"))}%`} x2=${`${at(find("50%"))}%`} y1="4" y2="24" stroke="currentColor" stroke-width="2"/><text x=${`${at(find("50%"))}%`} y="40" text-anchor="middle">median ${number(find("50%"))}</text>` : null}
  </svg>`;
}

function Power({ of }) {
  if (of.refused) return html`<p class="said bad" id="power">${of.refused}</p>`;
  return html`<div class="grid" id="power">
    <p><span class="number">${of.exposed == null ? "–" : `${of.exposed} vs ${of.reference}`}</span><span class="small soft">patients in the two groups, about</span></p>
    <p><span class="number">${of.events == null ? "–" : Math.round(of.events)}</span><span class="small soft">events expected</span></p>
    <p><span class="number">${of.detectable == null ? "–" : number(of.detectable)}</span><span class="small soft">${of.scale}: the smallest that these patients can show (80% power)</span></p>
    <p><span class="number">${of.power == null ? "–" : `${Math.round(100 * of.power)}%`}</span><span class="small soft">chance to detect a ${of.scale} of ${number(of.relevant)}, the smallest that matters</span></p>
  </div>`;
}

function Picker({ run, value, onPick, label }) {
  const [typed, setTyped] = useState("");
  const [found, setFound] = useState([]);
  const [at, setAt] = useState(0);
  useEffect(() => {
    if (!typed.trim()) { setFound([]); return undefined; }
    const stop = new AbortController();
    const wait = setTimeout(() => api(`/api/runs/${address(run)}/variables?q=${encodeURIComponent(typed)}`, { signal: stop.signal }).then((rows) => { setFound(rows.slice(0, 12)); setAt(0); }, () => {}), 150);
    return () => { clearTimeout(wait); stop.abort(); };
  }, [typed]);
  const take = (row) => { if (row && !row.withheld) { onPick(row); setTyped(""); } };
  const keys = (event) => {
    if (event.key === "ArrowDown") { setAt(Math.min(at + 1, found.length - 1)); event.preventDefault(); }
    if (event.key === "ArrowUp") { setAt(Math.max(at - 1, 0)); event.preventDefault(); }
    if (event.key === "Enter" && found.length) { take(found[at]); event.preventDefault(); }
    if (event.key === "Escape") setTyped("");
  };
  const list = `list-${label.replaceAll(" ", "-")}`;
  return html`<div><label class="stack">${label} <span class="small">now ${value}</span>
      <input role="combobox" aria-autocomplete="list" aria-expanded=${found.length > 0} aria-controls=${list} aria-activedescendant=${found.length ? `${list}-${at}` : null}
        placeholder="type a gene or variable" value=${typed} onInput=${(e) => setTyped(e.target.value)} onKeyDown=${keys}/></label>
    <ul id=${list} role="listbox" aria-label=${`${label}, found`} class="parts">${found.map((row, n) => html`<li role="option" id=${`${list}-${n}`} aria-selected=${n === at} aria-disabled=${Boolean(row.withheld)} class=${n === at ? "panel" : ""} onClick=${() => take(row)}>
      <strong>${row.key}</strong><span>${row.label} <span class="soft">${row.kind}, known ${row.known_at}</span>${row.withheld ? html` <span class="said warn">${row.withheld}</span>` : null}</span><span class="soft">${row.missing == null ? "" : `${Math.round(100 * row.missing)}% missing`}</span></li>`)}</ul></div>`;
}

function Editor({ run, card, endpoints, changes, setChanges, seen }) {
  const hypothesis = { ...card.hypothesis, ...changes };
  const set = (key, value) => setChanges({ ...changes, [key]: value });
  const exposure = (n, more) => set("exposures", hypothesis.exposures.map((item, k) => (k === n ? { ...item, ...more } : item)));
  return html`<section aria-label="Edit"><h3>Edit</h3>
    ${hypothesis.exposures.map((item, n) => html`<fieldset class="panel"><legend class="small">Exposure ${n + 1}</legend>
      <${Picker} run=${run} value=${item.variable} label=${`Variable of exposure ${n + 1}`} onPick=${(row) => exposure(n, { variable: row.key, label: row.label })}/>
      <div class="row"><label>Side <select value=${item.level} onChange=${(e) => exposure(n, { level: e.target.value })}>${LEVELS.map((v) => html`<option>${v}</option>`)}</select></label>
        <label>Cut <select value=${item.cut} onChange=${(e) => exposure(n, { cut: e.target.value })}>${[...new Set([item.cut, ...CUTS])].map((v) => html`<option>${v}</option>`)}</select></label></div></fieldset>`)}
    <div class="row">
      <label>Endpoint <select id="endpoint" value=${hypothesis.endpoint} onChange=${(e) => setChanges({ ...changes, endpoint: e.target.value, secondary_endpoints: hypothesis.secondary_endpoints.filter((x) => x !== e.target.value) })}>${endpoints.map((e) => html`<option value=${e.key}>${e.label} (${e.n} patients${e.events == null ? "" : `, ${e.events} events`})</option>`)}</select></label>
      <label>Direction <select value=${hypothesis.direction} onChange=${(e) => set("direction", e.target.value)}><option value="higher_risk">higher risk</option><option value="lower_risk">lower risk</option><option value="either">either</option></select></label>
    </div>
    <p class="small">Covariates: ${hypothesis.covariates.map((key) => html`<button type="button" class="plain" aria-label=${`take out ${key}`} onClick=${() => set("covariates", hypothesis.covariates.filter((x) => x !== key))}>${key} ×</button>`)}</p>
    <${Picker} run=${run} value=${`${hypothesis.covariates.length} chosen`} label="Add a covariate" onPick=${(row) => set("covariates", [...new Set([...hypothesis.covariates, row.key])])}/>
    ${seen?.differences?.length ? html`<h3>What differs from the proposal</h3><div class="scroll" tabindex="0" role="region" aria-label="What differs"><table id="differences"><thead><tr><th>Field</th><th>Proposed</th><th>Edited</th></tr></thead><tbody>
      ${seen.differences.map(([field, before, after]) => html`<tr><td>${field}</td><td><del>${before}</del></td><td><ins>${after}</ins></td></tr>`)}</tbody></table></div>` : null}
  </section>`;
}

function Notes({ run, card, notes, person, reload }) {
  const [text, setText] = useState("");
  const [wrong, setWrong] = useState("");
  const mine = notes.filter((note) => note.hypothesis === card.id);
  const say = (event) => {
    event.preventDefault();
    api(`/api/runs/${address(run)}/comments`, { body: { reviewer: person, hypothesis: card.id, text } }).then(() => { setText(""); setWrong(""); reload(); }, (e) => setWrong(e.message));
  };
  return html`<section aria-label="Comments"><h3>Comments and decisions</h3>
    <ul class="small">${mine.map((note) => html`<li><strong>${note.reviewer}</strong> <span class="soft">${note.time.slice(0, 16).replace("T", " ")}</span> ${note.text || html`decided: ${note.response.type}${typeof note.response.args === "string" ? `, “${note.response.args}”` : ""} ${note.response.comment}`}</li>`)}</ul>
    <form class="row" onSubmit=${say}><input aria-label=${`comment on ${card.id}`} value=${text} onInput=${(e) => setText(e.target.value)} placeholder="a comment"/><button ...${only("review", !text.trim())}>Comment</button></form><${Wrong} error=${wrong}/></section>`;
}

function Card({ run, card, endpoints, notes, person, reload, response, respond, chosen }) {
  const [changes, setChanges] = useState({});
  const [seen, setSeen] = useState(null);
  const [error, setError] = useState("");
  const edited = Object.keys(changes).length > 0;
  useEffect(() => {
    if (!edited) { setSeen(null); setError(""); return undefined; }
    const stop = new AbortController();
    const wait = setTimeout(() => api(`/api/runs/${address(run)}/preview`, { body: { hypothesis: card.id, changes }, signal: stop.signal }).then((found) => { setSeen(found); setError(""); }, (e) => { if (e.name !== "AbortError") setError(e.message); }), 200);
    return () => { clearTimeout(wait); stop.abort(); };
  }, [changes]);
  const shown = seen || card;
  const decide = (type) => {
    if (type === "edit" && (!edited || error || !seen?.differences?.length)) { setError(error || "change a field first"); return; }
    respond({ type, args: type === "edit" ? { action: card.interrupt.action_request.action, args: changes } : type === "accept" ? null : response?.type === type ? response.args : "" });
  };
  useEffect(() => {
    if (!chosen) return undefined;
    const keys = (event) => {
      if (event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
      const way = WAYS.find(([, key]) => key === event.key);
      if (way) { decide(way[0]); event.preventDefault(); }
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  });
  return html`<article class="panel" id=${`card-${card.id}`} aria-label=${`hypothesis ${card.id}`} aria-current=${chosen ? "true" : null}>
    <p class="small soft">${card.id} · ${card.carries}</p>
    <h2 class="statement" aria-live="polite">${shown.statement || card.hypothesis.statement}</h2>
    <p>Compared: ${shown.design}. Expected: ${shown.direction}.</p>
    ${card.hypothesis.rationale && !edited ? html`<p>${card.hypothesis.rationale}</p>` : null}
    ${card.remark ? html`<aside class="said"><span class="small soft">Written by the model ${card.remark.by}, not checked:</span> ${card.remark.text}</aside>` : null}
    <${Power} of=${shown.power}/>
    <div class="split"><section aria-label="Evidence from the literature"><h3>Evidence from the literature</h3>
      ${card.support_absent ? html`<p class="said warn">The search found no passage that supports this hypothesis.</p>` : null}
      ${card.steps.map((step) => html`<div><p class="small"><strong>${step.process}</strong> <span class="soft">belief ${number(step.belief)}</span></p>${step.evidence.slice(0, 3).map((s) => html`<${Source} of=${s}/>`)}${step.contradicting.slice(0, 3).map((s) => html`<${Source} of=${s} against/>`)}</div>`)}
      ${card.steps.length ? null : card.citations.slice(0, 6).map((s) => html`<${Source} of=${s}/>`)}
      ${card.contradicting.length ? html`<h3>What speaks against it</h3>${card.contradicting.slice(0, 6).map((s) => html`<${Source} of=${s} against/>`)}` : null}
      ${card.hypothesis.untested.length ? html`<p class="said warn">Not tested: ${card.hypothesis.untested.join("; ")}</p>` : null}
    </section><section aria-label="Distribution of the variables"><h3>Distribution of the variables <span class="soft small">(no outcome is shown)</span></h3>${shown.variables.map((item) => html`<${Bars} of=${item}/>`)}</section></div>
    <details id=${`edit-${card.id}`}><summary>Edit the hypothesis</summary><${Editor} run=${run} card=${card} endpoints=${endpoints} changes=${changes} setChanges=${setChanges} seen=${seen}/></details>
    <${Wrong} error=${error}/>
    <div class="row" role="group" aria-label=${`decision on ${card.id}`}>${WAYS.map(([type, key, words]) => html`<button type="button" data-decide=${type} aria-pressed=${response?.type === type} class=${response?.type === type ? "first" : ""} onClick=${() => decide(type)}>${words} <kbd aria-hidden="true">${key}</kbd></button>`)}</div>
    ${response && ["response", "ignore"].includes(response.type) ? html`<label class="stack">${response.type === "ignore" ? "Why do you reject it?" : "What should the next hypothesis be about?"}<input id=${`why-${card.id}`} autofocus value=${response.args} onInput=${(e) => respond({ ...response, args: e.target.value })}/></label>` : null}
    <${Notes} run=${run} card=${card} notes=${notes} person=${person} reload=${reload}/>
  </article>`;
}

function Cards({ run, site, person, setPerson, go }) {
  const { data, error, load } = useLoaded(`/api/runs/${address(run)}/review`);
  const [responses, setResponses] = useState({});
  const [at, setAt] = useState(0);
  const [wrong, setWrong] = useState("");
  const [told, setTold] = useState("");
  const cards = data?.cards || [];
  useEffect(() => {
    const keys = (event) => {
      if (event.target.matches("input, textarea, select") || !["j", "k"].includes(event.key)) return;
      const next = Math.max(0, Math.min(cards.length - 1, at + (event.key === "j" ? 1 : -1)));
      setAt(next);
      document.getElementById(`card-${cards[next]?.id}`)?.scrollIntoView();
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  });
  if (!data) return html`<${Wrong} error=${error}/>`;
  if (!cards.length) return html`<p>Nothing in this run is waiting for review. <a href=${`/runs/${address(run)}`}>Back to the run</a></p>`;
  const open = cards.filter((card) => !responses[card.id]);
  const send = () => api(`/api/runs/${address(run)}/review`, { body: { reviewer: person, responses } }).then((found) => {
    setWrong("");
    if (found.applied) go(`/runs/${address(run)}`);
    else { setTold("Your decision is recorded. The run continues once enough reviewers agree."); setResponses({}); load(); }
  }, (e) => setWrong(e.message));
  return html`<p class="small soft"><a href=${`/runs/${address(run)}`}>${data.prompt}</a></p>
    ${cards.map((card, n) => html`<${Card} key=${card.id} run=${run} card=${card} endpoints=${data.endpoints} notes=${data.notes} person=${person} reload=${load}
      chosen=${n === at} response=${responses[card.id]} respond=${(response) => { setAt(n); setResponses((old) => ({ ...old, [card.id]: response })); }}/>`)}
    <div class="panel row"><label>Your name <input id="reviewer" disabled=${site.user_fixed} value=${person} onInput=${(e) => setPerson(e.target.value)}/></label>
      <button type="button" class="first" id="send" ...${only("review", open.length > 0 || !person.trim())} onClick=${send}>Record ${cards.length > 1 ? "decisions" : "decision"} and continue</button>
      <span class="small soft">${open.length ? `Still to decide: ${open.map((c) => c.id).join(", ")}` : data.reviewers > 1 ? `${data.reviewers} people must agree` : ""}</span></div>
    <${Wrong} error=${wrong}/>${told ? html`<p class="said" role="status">${told}</p>` : null}`;
}

export function Review({ site, query, go }) {
  const run = query.get("run");
  const { data, error } = useLoaded("/api/inbox");
  const [person, setPerson] = useState(site.user || localStorage.getItem("reviewer") || "");
  const name = (value) => { setPerson(value); localStorage.setItem("reviewer", value); };
  return html`<h1>Review</h1>
    <p class="small soft">Keys: <kbd>a</kbd> approve, <kbd>e</kbd> accept your edit, <kbd>n</kbd> ask for another, <kbd>r</kbd> reject, <kbd>j</kbd> <kbd>k</kbd> next and previous.</p>
    ${run ? html`<${Cards} key=${run} run=${run} site=${site} person=${person} setPerson=${name} go=${go}/>` : html`<${Wrong} error=${error}/>
      ${data && !data.length ? html`<p>No run is waiting for review.</p>` : null}
      <ul>${data?.map((item) => html`<li><a href=${`/review?run=${address(item.name)}`}>${item.prompt}</a> <span class="soft">${item.cohort}; ${item.interrupts.length} to decide</span></li>`)}</ul>`}`;
}
