// Ask a question, see how it is read and what it costs, and the answers of the runs.
import { html, api, address, curveOf, only, Pill, seconds, usd, useEffect, useLoaded, useState, Verdict, Wrong } from "./lib.js";

const ROLES = ["exposure", "endpoint", "modifier", "treatment", "population"];

function Reading({ read, busy, setReplaced, dropped, setDropped }) {
  const [role, setRole] = useState("exposure");
  const [words, setWords] = useState("");
  if (!read) return html`<p class="soft small" role="status">${busy ? "Reading your question. The first time, this takes up to a minute, while the cohort and the literature graph are loaded." : ""}</p>`;
  const add = (event) => {
    event.preventDefault();
    if (!words.trim()) return;
    setReplaced((old) => ({ ...old, [role]: [words.trim()] }));
    setWords("");
  };
  const take = (part, name) => {
    const role = part.role === "qualifier" ? "exposure" : part.role;
    const others = read.parts.filter((it) => it.role === role && it !== part && !it.left_out);
    setReplaced((old) => ({ ...old, [role]: [...others.map((it) => it.words), name] }));
    if (role !== part.role) setDropped((old) => [...old, part.words]);
  };
  return html`
    <p class="small"><strong>${read.intent || ""}</strong></p>
    <ul class="parts">${read.parts.map((part) => html`<li>
      <span class="soft">${part.role}</span>
      <span>${part.said}${part.nearest.length && !part.left_out ? html`<span class="soft"> Did you mean ${part.nearest.map((name, at) => html`${at ? " or " : ""}<button type="button" class="plain" onClick=${() => take(part, name)}>${name}</button>`)}?</span>` : null}</span>
      ${part.left_out ? html`<span class="soft">left out</span>` : html`<button type="button" class="plain"
        aria-label=${`leave out ${part.words}`} onClick=${() => setDropped((old) => [...old, part.words])}>leave out</button>`}
    </li>`)}</ul>
    ${dropped.length ? html`<p class="small">Left out: ${dropped.join(", ")} <button type="button" class="plain" onClick=${() => setDropped([])}>Undo</button></p>` : null}
    ${read.notes.map((note) => html`<p class="said">${note}</p>`)}
    ${read.mismatches.map((text) => html`<p class="said warn">${text}</p>`)}
    ${read.refusals.map((text) => html`<p class="said bad">${text}</p>`)}
    <form class="row" onSubmit=${add}>
      <label>Misread? Replace the <select aria-label="part to correct" value=${role} onChange=${(e) => setRole(e.target.value)}>${ROLES.map((r) => html`<option>${r}</option>`)}</select></label>
      <input aria-label="new words for this part" placeholder="by these words" value=${words} onInput=${(e) => setWords(e.target.value)}/>
      <button type="submit">Replace</button>
      <button type="button" class="plain" onClick=${() => { setReplaced({}); setDropped([]); }}>Undo all corrections</button>
    </form>`;
}

function Cost({ hypotheses }) {
  const { data } = useLoaded(`/api/estimate?hypotheses=${hypotheses}`);
  if (!data) return null;
  const money = data.reasoner === "rules" ? "Costs nothing: no language model is used"
    : `${data.calls} calls of a language model, about ${data.tokens.toLocaleString("en-US")} tokens, ${data.usd == null ? "cost unknown: no prices are set" : `${usd(data.usd)} to ${usd(data.usd_most)}`}`;
  return html`<p class="small soft" id="cost">${money}; ${data.runs ? `takes about ${seconds(data.seconds)}, like earlier runs here` : "its duration can be estimated after the first run here"}.</p>`;
}

export function Home({ site, go }) {
  const [prompt, setPrompt] = useState("");
  const [cohort, setCohort] = useState("demo");
  const [hypotheses, setHypotheses] = useState(1);
  const [auto, setAuto] = useState(false);
  const [replaced, setReplaced] = useState({});
  const [dropped, setDropped] = useState([]);
  const [read, setRead] = useState(null);
  const [error, setError] = useState("");
  const [starting, setStarting] = useState(false);
  useEffect(() => {
    if (!prompt.trim()) { setRead(null); setError(""); return undefined; }
    const stop = new AbortController();
    const wait = setTimeout(() => api("/api/ask", { body: { prompt, cohort, replaced, dropped }, signal: stop.signal })
      .then((found) => { setRead(found); setError(""); }, (e) => { if (e.name !== "AbortError") { setRead(null); setError(e.message); } }), 250);
    return () => { clearTimeout(wait); stop.abort(); };
  }, [prompt, cohort, replaced, dropped]);
  const start = async (event) => {
    event.preventDefault();
    setStarting(true);
    try {
      const { name } = await api("/api/runs", { body: { prompt, cohort, replaced, dropped, hypotheses, auto_approve: auto } });
      go(`/runs/${address(name)}`);
    } catch (e) { setError(e.message); setStarting(false); }
  };
  const mayPass = site.reviewers < 2 && (!site.user_fixed || site.roles.some((role) => ["review", "administer"].includes(role)));
  const refused = !read || read.refusals.length > 0, typed = Boolean(prompt.trim());
  return html`
    <h1>What do you want to know?</h1>
    <div class=${typed ? "split" : "ask"}>
      <form onSubmit=${start}>
        <label class="stack">Research question
          <textarea id="question" rows=${typed ? 4 : 2} maxlength="2000" autofocus value=${prompt} onInput=${(e) => setPrompt(e.target.value)}
            placeholder="How do tertiary lymphoid structures relate to overall survival in bladder cancer?"></textarea></label>
        <div class="row">
          <label>Cohort <select value=${cohort} onChange=${(e) => setCohort(e.target.value)}>${site.cohorts.map((c) => html`<option value=${c.id}>${c.title}${c.simulated ? " (simulated)" : ""}</option>`)}</select></label>
          ${typed ? html`<label>Hypotheses to test <input type="number" min="1" max="10" value=${hypotheses} onInput=${(e) => setHypotheses(Math.min(10, Math.max(1, Number(e.target.value) || 1)))}/></label>` : null}
        </div>
        ${typed && mayPass ? html`<p><label><input type="checkbox" checked=${auto} onChange=${(e) => setAuto(e.target.checked)}/> Test without my review (the report says so)</label></p>` : null}
        ${typed ? html`<${Cost} hypotheses=${hypotheses}/>` : null}
        <${Wrong} error=${error}/>
        <button class="first" id="start" ...${only("run", refused || starting)}>${starting ? "Starting …" : "Start"}</button>
      </form>
      ${typed ? html`<section class="panel" aria-live="polite" aria-label="How SAGE reads the question">
        <h2>How SAGE reads the question</h2>
        <${Reading} read=${read} busy=${!error} setReplaced=${setReplaced} dropped=${dropped} setDropped=${setDropped}/>
      </section>` : null}
    </div>
    <${Runs}/>
    <${Missing}/>`;
}

function RunCard({ run }) {
  const [claim, ...more] = run.claims, to = `/runs/${address(run.name)}`;
  return html`<li class="card" data-run=${run.name}><div>
      <p class="row tight">${run.claims.map((item) => html`<${Verdict} of=${item}/>`)}${claim && run.status === "finished" ? null : html`<${Pill} state=${run.status}/>`}${run.simulated ? html`<span class="pill warn">simulated</span>` : null}</p>
      <h3><a href=${to}>${claim ? claim.sentence : run.prompt}</a></h3>
      ${claim ? html`<p><strong>${claim.effect}</strong>${more.length ? html` <a href=${to} class="small">+${more.length} more</a>` : null}</p>` : html`<p class="why">${run.why}</p>`}
      <p class="small soft">${run.cohort} · ${run.created.slice(0, 10)}${claim ? html` · asked: “${run.prompt}”` : null}
        ${run.status === "waiting for review" ? html` · <a href=${`/review?run=${address(run.name)}`} aria-label=${`review: ${run.prompt}`}>Review</a>` : null}
        ${run.report ? html` · <a href=${`/api/runs/${address(run.name)}/report`} data-plain aria-label=${`report: ${claim ? claim.sentence : run.prompt}`}>Report</a>` : null}</p>
    </div>${claim?.figure ? html`<img class="curve" src=${curveOf(run.name, claim)} alt="" loading="lazy"/>` : null}</li>`;
}

function Runs() {
  const [limit, setLimit] = useState(12);
  const { data, error, load } = useLoaded(`/api/runs?limit=${limit}`);
  useEffect(() => { const again = setInterval(load, 5000); return () => clearInterval(again); }, [limit]);
  if (!data) return html`<${Wrong} error=${error}/>`;
  return html`<h2>Runs</h2>
    ${data.runs.length ? html`<ul class="cards">${data.runs.map((run) => html`<${RunCard} key=${run.name} run=${run}/>`)}</ul>` : html`<p class="soft">None yet. Ask a question above.</p>`}
    ${data.all > data.runs.length ? html`<button type="button" onClick=${() => setLimit(limit + 24)}>Show older runs (${data.all - data.runs.length})</button>` : null}
    ${data.campaigns.length ? html`<h2>Campaigns</h2><ul>${data.campaigns.map((c) => html`<li>${c.question} <${Pill} state=${c.status}/> <span class="soft small">${c.stopped}</span></li>`)}</ul>` : null}`;
}

function Missing() {
  const { data } = useLoaded("/api/doctor");
  if (!data) return null;
  const gone = data.filter((check) => check.state !== "ok");
  return html`<h2>Missing on this machine</h2>
    ${gone.length ? html`<ul class="small">${gone.map((c) => html`<li><strong>${c.what}</strong>: ${c.found}${c.remedy ? html`. <span class="soft">${c.remedy}</span>` : null}</li>`)}</ul>` : html`<p>Nothing.</p>`}`;
}
