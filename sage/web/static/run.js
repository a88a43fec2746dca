// A run: its answers or what it is doing now, then its steps, their agents' turns and its log.
import { html, api, address, count, curveOf, only, Pill, seconds, usd, useEffect, useLoaded, useRef, useState, Verdict, Wrong } from "./lib.js";

// The steps of sage/run/graph.py, in the order in which a run goes through them.
const BEFORE = ["question", "path_generation", "ontologist", "scientist", "review"];
const EACH = ["expansion", "novelty", "feasibility", "coding_instructions", "coding"];
const TOLD = ["interpreter", "summary"];
const AFTER = ["judge", "report"];
export const STEPS = { BEFORE, EACH, TOLD, AFTER };
const MARKS = { done: "✓", busy: "●", error: "✗", wait: "?", ahead: "" };
const WORDS = { done: "done", busy: "in progress", error: "failed", wait: "waiting for you", ahead: "not started" };
const LIVE = ["running", "starting", "pausing"];

function statesOf(events, status) {
  const found = {};
  for (const event of events) {
    if (!event.node) continue;
    const key = `${event.hypothesis || ""}/${event.node}`;
    const step = found[key] ||= { state: "ahead", seconds: 0, times: 0, notes: [] };
    if (event.event === "start") step.state = "busy";
    if (event.event === "end") { step.state = "done"; step.seconds += event.seconds; step.times += 1; }
    if (event.event === "error") { step.state = "error"; step.notes.push(event.message); }
    if (event.event === "note") step.notes.push(event.message);
  }
  if (!LIVE.includes(status)) for (const step of Object.values(found)) if (step.state === "busy") step.state = "ahead";
  const reviewed = events.some((event) => EACH.includes(event.node) || AFTER.includes(event.node));
  found["/review"] = { state: status === "waiting for review" ? "wait" : reviewed ? "done" : "ahead", seconds: 0, times: 0, notes: [] };
  return found;
}

function Step({ node, hypothesis = "", states, steps, chosen, choose }) {
  const step = states[`${hypothesis}/${node}`] || { state: "ahead", seconds: 0, times: 0, notes: [] };
  const key = `${hypothesis}/${node}`;
  return html`<li><button type="button" class=${step.state} aria-pressed=${chosen === key} data-step=${key} onClick=${() => choose(key)}>
    <span><span class="dot" aria-hidden="true">${MARKS[step.state]}</span> ${steps[node]}</span>
    <span class="tiny soft">${step.times ? html`<span class="unseen">${WORDS[step.state]} in </span>${seconds(step.seconds)}` : WORDS[step.state]}${step.times > 1 ? ` · ${step.times} times` : ""}</span>
  </button></li>`;
}

function Diagram(given) {
  const ids = given.hypotheses;
  const line = (nodes, hypothesis) => html`<ol class="steps">${nodes.map((node) => html`<${Step} ...${given} node=${node} hypothesis=${hypothesis}/>`)}</ol>`;
  return html`<section aria-label="Steps of the run">
    ${line(BEFORE)}
    ${ids.map((item) => html`<div class="lane"><p class="small"><strong>${item.id}</strong></p>${line(EACH, item.id)}</div>`)}
    ${line(["judge"])}
    ${ids.filter((item) => given.states[`${item.id}/interpreter`]).map((item) => html`<div class="lane"><p class="small"><strong>${item.id}</strong></p>${line(TOLD, item.id)}</div>`)}
    ${line(["report"])}
  </section>`;
}

const KINDS = { model: "model", rule: "rule", tool: "tool", refusal: "refused", human: "person", end: "answer" };

function Turn({ turn }) {
  const spent = [turn.seconds != null && seconds(turn.seconds), turn.prompt_tokens && `${count(turn.prompt_tokens)} tokens read`, turn.completion_tokens && `${count(turn.completion_tokens)} written`, turn.usd && usd(turn.usd)].filter(Boolean).join(" · ");
  const parts = ["messages", "content", "reasoning", "arguments", "result", "output", "decision", "text", "error"].filter((key) => turn[key]);
  return html`<details><summary>${KINDS[turn.kind] || turn.kind}${turn.tool ? ` ${turn.tool}` : ""} <span class="soft small">${spent}</span></summary>
    ${parts.map((key) => html`<p class="small"><strong>${key}</strong></p><pre tabindex="0">${turn[key]}</pre>`)}</details>`;
}

function Agents({ name, chosen, step, steps }) {
  const [hypothesis, node] = chosen.split("/");
  const { data, error } = useLoaded(`/api/runs/${address(name)}/agents?node=${address(node)}&hypothesis=${address(hypothesis)}`, `${name} ${chosen} ${step?.times} ${step?.state}`);
  return html`<section class="panel" id="agent" aria-live="polite"><h3>${steps[node]} ${hypothesis}</h3>
    ${step?.notes.map((note) => html`<p class="said warn">${note}</p>`)}<${Wrong} error=${error}/>
    ${data && !data.episodes.length ? html`<p class="soft">${step?.times ? "No agent takes part in this step." : "This step has not finished yet."}</p>` : null}
    ${data?.episodes.map((episode) => html`<article><h4>${episode.agent.replaceAll("_", " ")} <span class="soft small">${episode.reasoner === "rules" ? "by rules, no model" : episode.reasoner}</span></h4>
      <p class="small">${episode.reads ? `Was given: ${episode.reads}. ` : ""}Answers with: ${episode.returns}.
        ${episode.tools.length ? ` Tools: ${episode.tools.join(", ")}.` : " No tools."} <span class="soft">SHA-256 of the input: ${episode.input_sha256.slice(0, 12)}…</span></p>
      ${episode.turns.filter((turn) => turn.kind !== "ask").map((turn) => html`<${Turn} turn=${turn}/>`)}</article>`)}
  </section>`;
}

function Log({ name }) {
  const { data, load } = useLoaded(`/api/runs/${address(name)}/log`);
  useEffect(() => { const again = setInterval(load, 3000); return () => clearInterval(again); }, [name]);
  if (!data) return null;
  return html`<details><summary>Log</summary><pre tabindex="0">${data.lines.map((line) => `${(line.time || "").slice(11, 19)} ${line.level} ${line.event} ${Object.entries(line).filter(([key]) => !["time", "level", "logger", "event"].includes(key)).map(([key, value]) => `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`).join(" ")}`).join("\n")}</pre>
    ${data.said ? html`<h3>Output of the command</h3><pre tabindex="0">${data.said}</pre>` : null}</details>`;
}

function Claim({ run, claim, first, report }) {
  return html`<article class="claim" aria-label=${`answer ${claim.id}`}><div>
      <p><${Verdict} of=${claim}/> <span class="small soft">${claim.id}</span></p>
      <${first ? "h1" : "h2"} class="answer">${claim.sentence}<//>
      ${claim.effect ? html`<p class="number">${claim.effect}</p>` : null}
      ${claim.objection ? html`<p class="said warn">${claim.objection}</p>` : claim.effect ? html`<p class="said">${claim.verdict_words}.</p>` : null}
      ${report ? html`<p><a class="button" id=${first ? "to-report" : null} data-plain href=${`${report}#answer-${claim.id}`}>Read the report</a></p>` : null}
    </div>${claim.figure ? html`<figure><a data-plain href=${curveOf(run, claim)} target="_blank" rel="noopener"><img class="curve" src=${curveOf(run, claim)} alt="Figure of this comparison, larger in a new tab"/></a></figure>` : null}</article>`;
}

export function Run({ name, go }) {
  const base = `/api/runs/${address(name)}`;
  const { data, error, load } = useLoaded(base);
  const [events, setEvents] = useState([]);
  const [live, setLive] = useState(null);
  const [chosen, choose] = useState("");
  const [wrong, setWrong] = useState("");
  const later = useRef(0);
  useEffect(() => {
    setEvents([]);
    const source = new EventSource(`${base}/events`);
    const seen = new Set();
    source.addEventListener("step", (message) => {
      if (seen.has(message.lastEventId)) return;
      seen.add(message.lastEventId);
      const event = { ...JSON.parse(message.data), shown: Date.now() };
      setEvents((old) => [...old, event]);
      clearTimeout(later.current);
      later.current = setTimeout(load, 400);
    });
    source.addEventListener("state", (message) => { setLive(JSON.parse(message.data)); clearTimeout(later.current); later.current = setTimeout(load, 400); });
    return () => { source.close(); clearTimeout(later.current); };
  }, [name]);
  if (!data) return html`<${Wrong} error=${error}/>`;
  const status = live?.status || data.status;
  const states = statesOf(events, status), busy = Object.entries(states).flatMap(([key, step]) => (step.state === "busy" ? [key.split("/")] : []));
  const problem = live ? live.problem : data.problem, why = live?.why || data.why;
  const tell = (what, body = {}) => api(`${base}/${what}`, { body }).then(() => setWrong(""), (e) => setWrong(e.message));
  const spent = data.spending.reduce((sum, row) => ({ seconds: sum.seconds + row.seconds, read: sum.read + row.prompt_tokens, written: sum.written + row.completion_tokens, usd: sum.usd + row.usd }), { seconds: 0, read: 0, written: 0, usd: 0 });
  const report = live?.report || data.report ? `${base}/report` : "", answered = data.claims.length > 0;
  const now = status === "running" && busy.length ? [...new Set(busy.map(([, node]) => data.steps[node]))].join(", ") : problem && status === "failed" ? "The run failed" : why;
  return html`
    <p class="small soft">${data.simulated ? html`<span class="pill warn">simulated</span> ` : null}${data.cohort || ""}${data.created ? ` · ${data.created.slice(0, 10)}` : ""}</p>
    ${data.claims.map((claim, n) => html`<${Claim} key=${claim.id} run=${name} claim=${claim} first=${!n} report=${report}/>`)}
    ${answered ? null : html`<h1 class="answer" id="now" aria-live="polite">${now}</h1>`}
    ${data.prompt ? html`<p class="soft" id="asked">Asked: “${data.prompt}”</p>` : null}
    ${answered ? null : data.hypotheses.map((item) => html`<p class="small"><strong>${item.id}</strong> ${item.statement}</p>`)}
    <div class="row"><span id="status"><${Pill} state=${status}/></span>
      ${status === "running" ? html`<button type="button" id="pause" title="Finishes the current step, then waits" ...${only("run")} onClick=${() => tell("pause")}>Pause</button>` : null}
      ${LIVE.includes(status) ? html`<button type="button" id="stop" title="Ends at once; the current step is repeated later" ...${only("run")} onClick=${() => tell("stop")}>Stop</button>` : null}
      ${["stopped", "paused", "interrupted", "failed"].includes(status) && data.folder ? html`<button type="button" id="resume" class="first" ...${only("run")} onClick=${() => tell("resume")}>Resume</button>` : null}
      ${status === "escalated" ? html`<button type="button" class="first" ...${only("run")} onClick=${() => tell("resume", { answer: "retry" })}>Run the corrected program</button><button type="button" ...${only("run")} onClick=${() => tell("resume", { answer: "abandon" })}>Give up this analysis</button>` : null}
      ${status === "waiting for review" ? html`<a class="button first" id="to-review" href=${`/review?run=${address(name)}`}>Review</a>` : null}
      ${report && !answered ? html`<a class="button" id="to-report" data-plain href=${report}>Read the report</a>` : null}
    </div>
    ${problem ? html`<p class="said bad" role="alert" id="problem">${problem}</p>` : null}<${Wrong} error=${wrong}/>
    <details id="how" open=${!answered}><summary>How SAGE got there: steps, time and cost</summary>
    <div class="grid">
      <p><span class="number">${seconds(spent.seconds)}</span><span class="small soft">computing time</span></p>
      <p><span class="number">${count(spent.read + spent.written)}</span><span class="small soft">tokens, ${count(spent.written)} of them written</span></p>
      <p><span class="number">${usd(spent.usd)}</span><span class="small soft">${data.budget_usd ? `of a budget of ${usd(data.budget_usd)}` : "spent on models"}</span></p>
    </div>
    <p class="small soft">Select a step to see what its agent was given, which tools it called and what it answered.</p>
    <${Diagram} states=${states} steps=${data.steps} hypotheses=${data.hypotheses} chosen=${chosen} choose=${choose}/>
    ${chosen ? html`<${Agents} name=${name} chosen=${chosen} step=${states[chosen]} steps=${data.steps}/>` : null}
    <details><summary>Events (${events.length})</summary><ol class="small" id="events">${events.map((event) => html`<li data-at=${event.time} data-shown=${event.shown}><span class="soft">${event.time.slice(11, 19)}</span> ${event.event} ${event.hypothesis || ""} ${event.node ? data.steps[event.node] : ""} ${event.message || ""}</li>`)}</ol></details>
    <${Log} name=${name}/>
    ${data.folder ? html`<p class="small soft">Folder: ${data.folder}</p>` : null}</details>`;
}
