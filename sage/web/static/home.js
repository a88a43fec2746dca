// Ask a question, see how it is read and what it costs, and what was run.
import { html, api, address, only, Pill, seconds, usd, useEffect, useLoaded, useState, Wrong } from "./lib.js";

const ROLES = ["exposure", "endpoint", "modifier", "treatment", "population"];

function Reading({ read, busy, setReplaced, dropped, setDropped }) {
  const [role, setRole] = useState("exposure");
  const [words, setWords] = useState("");
  if (busy && !read) return html`<p class="soft small" role="status">Reading … (the first time, cohort and graph are made ready.)</p>`;
  if (!read) return html`<p class="soft small">What SAGE understands is shown here while you type. Nothing runs and nothing is paid for.</p>`;
  const add = (event) => {
    event.preventDefault();
    if (!words.trim()) return;
    setReplaced((old) => ({ ...old, [role]: [words.trim()] }));
    setWords("");
  };
  return html`
    <p class="small"><strong>${read.intent || ""}</strong></p>
    <ul class="parts">${read.parts.map((part) => html`<li>
      <span class="soft">${part.role}</span>
      <span>${part.said}${part.nearest.length ? html`<span class="soft"> Nearest: ${part.nearest.join(", ")}</span>` : null}</span>
      ${part.left_out ? html`<span class="soft">left out</span>` : html`<button type="button" class="plain"
        aria-label=${`leave out ${part.words}`} onClick=${() => setDropped((old) => [...old, part.words])}>leave out</button>`}
    </li>`)}</ul>
    ${dropped.length ? html`<p class="small">Left out: ${dropped.join(", ")} <button type="button" class="plain" onClick=${() => setDropped([])}>take back</button></p>` : null}
    ${read.notes.map((note) => html`<p class="said">${note}</p>`)}
    ${read.mismatches.map((text) => html`<p class="said warn">${text}</p>`)}
    ${read.refusals.map((text) => html`<p class="said bad">${text}</p>`)}
    <form class="row" onSubmit=${add}>
      <label>Read instead: <select aria-label="part to correct" value=${role} onChange=${(e) => setRole(e.target.value)}>${ROLES.map((r) => html`<option>${r}</option>`)}</select></label>
      <input aria-label="in these words" placeholder="in these words" value=${words} onInput=${(e) => setWords(e.target.value)}/>
      <button type="submit">Correct</button>
      <button type="button" class="plain" onClick=${() => { setReplaced({}); setDropped([]); }}>undo corrections</button>
    </form>`;
}

function Cost({ hypotheses }) {
  const { data } = useLoaded(`/api/estimate?hypotheses=${hypotheses}`);
  if (!data) return null;
  const money = data.reasoner === "rules" ? "no model is called: no tokens, no money"
    : `${data.calls} calls, about ${data.tokens.toLocaleString("en-US")} tokens, ${data.usd == null ? "no prices set" : `${usd(data.usd)} to ${usd(data.usd_most)}`}`;
  return html`<p class="small soft" id="cost">${money}; ${data.runs ? `about ${seconds(data.seconds)}, as the last ${data.runs} run(s) here took` : "how long it takes is known after the first run here"}.</p>`;
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
  const refused = !read || read.refusals.length > 0;
  return html`
    <h1>What do you want to know?</h1>
    <div class="split">
      <form onSubmit=${start}>
        <label class="stack">Research question
          <textarea id="question" rows="4" maxlength="2000" autofocus value=${prompt} onInput=${(e) => setPrompt(e.target.value)}
            placeholder="How do tertiary lymphoid structures relate to overall survival in bladder cancer?"></textarea></label>
        <div class="row">
          <label>Cohort <select value=${cohort} onChange=${(e) => setCohort(e.target.value)}>${site.cohorts.map((c) => html`<option value=${c.id}>${c.title}${c.simulated ? " (simulated)" : ""}</option>`)}</select></label>
          <label>Hypotheses <input type="number" min="1" max="10" value=${hypotheses} onInput=${(e) => setHypotheses(Math.min(10, Math.max(1, Number(e.target.value) || 1)))}/></label>
        </div>
        ${mayPass ? html`<p><label><input type="checkbox" checked=${auto} onChange=${(e) => setAuto(e.target.checked)}/> pass the review without a person (the report says so)</label></p>` : null}
        <${Cost} hypotheses=${hypotheses}/>
        <${Wrong} error=${error}/>
        <button class="first" id="start" ...${only("run", refused || starting)}>${starting ? "Starting …" : "Start"}</button>
      </form>
      <section class="panel" aria-live="polite" aria-label="How the question is read">
        <h3>How the question is read</h3>
        <${Reading} read=${read} busy=${Boolean(prompt.trim()) && !error} setReplaced=${setReplaced} dropped=${dropped} setDropped=${setDropped}/>
      </section>
    </div>
    <${Runs}/>
    <${Missing}/>`;
}

function Runs() {
  const { data, error, load } = useLoaded("/api/runs");
  useEffect(() => { const again = setInterval(load, 5000); return () => clearInterval(again); }, []);
  if (!data) return html`<${Wrong} error=${error}/>`;
  return html`<h2>Runs</h2>
    ${data.runs.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Runs"><table><thead><tr><th>Question</th><th>State</th><th>Cohort</th><th>Begun</th><th>Report</th></tr></thead><tbody>
      ${data.runs.map((run) => html`<tr><td><a href=${`/runs/${address(run.name)}`}>${run.prompt}</a></td><td><${Pill} state=${run.status}/></td>
        <td>${run.cohort}${run.simulated ? " (simulated)" : ""}</td><td class="soft">${run.created.slice(0, 16).replace("T", " ")}</td>
        <td>${run.report ? html`<a href=${`/api/runs/${address(run.name)}/report`} data-plain aria-label=${`report of ${run.prompt}`}>report</a>` : "–"}</td></tr>`)}
    </tbody></table></div>` : html`<p class="soft">None yet.</p>`}
    ${data.campaigns.length ? html`<h2>Campaigns</h2><ul>${data.campaigns.map((c) => html`<li>${c.question} <${Pill} state=${c.status}/> <span class="soft small">${c.stopped}</span></li>`)}</ul>` : null}`;
}

function Missing() {
  const { data } = useLoaded("/api/doctor");
  if (!data) return null;
  const gone = data.filter((check) => check.state !== "ok");
  return html`<h2>This machine</h2>
    ${gone.length ? html`<ul class="small">${gone.map((c) => html`<li><strong>${c.what}</strong>: ${c.found}${c.remedy ? html`. <span class="soft">${c.remedy}</span>` : null}</li>`)}</ul>` : html`<p>Nothing is missing.</p>`}`;
}
