// A run while it works: the graph of its agents, their turns, its log.
import { html, api, address, count, only, Pill, seconds, usd, useEffect, useLoaded, useRef, useState, Wrong } from "./lib.js";

// The steps of sage/run/graph.py, in the order in which a run goes through them.
const BEFORE = ["question", "path_generation", "ontologist", "scientist", "review"];
const EACH = ["expansion", "novelty", "feasibility", "coding_instructions", "coding"];
const TOLD = ["interpreter", "summary"];
const AFTER = ["judge", "report"];
export const STEPS = { BEFORE, EACH, TOLD, AFTER };
const MARKS = { done: "✓", busy: "●", error: "✗", wait: "?", ahead: "" };
const WORDS = { done: "done", busy: "at work", error: "failed", wait: "waits for you", ahead: "not begun" };
const plain = (node) => node.replaceAll("_", " ");

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
  const live = ["running", "starting", "pausing"].includes(status);
  if (!live) for (const step of Object.values(found)) if (step.state === "busy") step.state = "ahead";
  const reviewed = events.some((event) => EACH.includes(event.node) || AFTER.includes(event.node));
  found["/review"] = { state: status === "waiting for review" ? "wait" : reviewed ? "done" : "ahead", seconds: 0, times: 0, notes: [] };
  return found;
}

function Step({ node, hypothesis = "", states, chosen, choose }) {
  const step = states[`${hypothesis}/${node}`] || { state: "ahead", seconds: 0, times: 0, notes: [] };
  const key = `${hypothesis}/${node}`;
  return html`<li><button type="button" class=${step.state} aria-pressed=${chosen === key} data-step=${key} onClick=${() => choose(key)}>
    <span><span class="dot" aria-hidden="true">${MARKS[step.state]}</span> ${plain(node)}</span>
    <span class="tiny soft">${step.times ? html`<span class="unseen">${WORDS[step.state]} in </span>${seconds(step.seconds)}` : WORDS[step.state]}${step.times > 1 ? ` · ${step.times} times` : ""}</span>
  </button></li>`;
}

function Diagram(given) {
  const ids = given.hypotheses;
  const line = (nodes, hypothesis) => html`<ol class="steps">${nodes.map((node) => html`<${Step} ...${given} node=${node} hypothesis=${hypothesis}/>`)}</ol>`;
  return html`<section aria-label="Steps of the run">
    ${line(BEFORE)}
    ${ids.map((item) => html`<div class="lane"><p class="small"><strong>${item.id}</strong> ${item.statement}
      ${item.verdict ? html` <span class="pill">${item.verdict}</span>` : item.ended ? html` <span class="pill">${item.ended}</span>` : null}</p>
      ${line(EACH, item.id)}</div>`)}
    ${line(["judge"])}
    ${ids.filter((item) => given.states[`${item.id}/interpreter`]).map((item) => html`<div class="lane"><p class="small"><strong>${item.id}</strong></p>${line(TOLD, item.id)}</div>`)}
    ${line(["report"])}
  </section>`;
}

const KINDS = { model: "model", rule: "rule", tool: "tool", refusal: "sent back", human: "a person", end: "answer" };

function Turn({ turn }) {
  const spent = [turn.seconds != null && seconds(turn.seconds), turn.prompt_tokens && `${count(turn.prompt_tokens)} tokens read`, turn.completion_tokens && `${count(turn.completion_tokens)} written`, turn.usd && usd(turn.usd)].filter(Boolean).join(" · ");
  const parts = ["messages", "content", "reasoning", "arguments", "result", "output", "decision", "text", "error"].filter((key) => turn[key]);
  return html`<details><summary>${KINDS[turn.kind] || turn.kind}${turn.tool ? ` ${turn.tool}` : ""} <span class="soft small">${spent}</span></summary>
    ${parts.map((key) => html`<h3>${key}</h3><pre tabindex="0">${turn[key]}</pre>`)}</details>`;
}

function Agents({ name, chosen, step }) {
  const [hypothesis, node] = chosen.split("/");
  const { data, error } = useLoaded(`/api/runs/${address(name)}/agents?node=${address(node)}&hypothesis=${address(hypothesis)}`, `${name} ${chosen} ${step?.times} ${step?.state}`);
  return html`<section class="panel" id="agent" aria-live="polite"><h2>${hypothesis} ${plain(node)}</h2>
    ${step?.notes.map((note) => html`<p class="said warn">${note}</p>`)}<${Wrong} error=${error}/>
    ${data && !data.episodes.length ? html`<p class="soft">No agent was asked in this step${step ? "" : " yet"}.</p>` : null}
    ${data?.episodes.map((episode) => html`<article><h3>${plain(episode.agent)} <span class="soft small">${episode.reasoner}</span></h3>
      <p class="small">Given: ${episode.reads || "what the step needs"}. Returns: ${episode.returns}.
        ${episode.tools.length ? ` Tools at hand: ${episode.tools.join(", ")}.` : " No tools."} <span class="soft">Input ${episode.input_sha256.slice(0, 12)}</span></p>
      ${episode.turns.filter((turn) => turn.kind !== "ask").map((turn) => html`<${Turn} turn=${turn}/>`)}</article>`)}
  </section>`;
}

function Log({ name }) {
  const { data, load } = useLoaded(`/api/runs/${address(name)}/log`);
  useEffect(() => { const again = setInterval(load, 3000); return () => clearInterval(again); }, [name]);
  if (!data) return null;
  return html`<details><summary>Log</summary><pre tabindex="0">${data.lines.map((line) => `${(line.time || "").slice(11, 19)} ${line.level} ${line.event} ${Object.entries(line).filter(([key]) => !["time", "level", "logger", "event"].includes(key)).map(([key, value]) => `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`).join(" ")}`).join("\n")}</pre>
    ${data.said ? html`<h3>What the command said</h3><pre tabindex="0">${data.said}</pre>` : null}</details>`;
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
  const states = statesOf(events, status);
  const problem = live ? live.problem : data.problem;
  const tell = (what, body = {}) => api(`${base}/${what}`, { body }).then(() => setWrong(""), (e) => setWrong(e.message));
  const spent = data.spending.reduce((sum, row) => ({ seconds: sum.seconds + row.seconds, read: sum.read + row.prompt_tokens, written: sum.written + row.completion_tokens, usd: sum.usd + row.usd }), { seconds: 0, read: 0, written: 0, usd: 0 });
  const last = events.filter((event) => event.event === "start").at(-1);
  return html`
    <p class="small soft">${data.cohort || ""}${data.simulated ? " (simulated)" : ""} · ${name}</p>
    <h1>${data.prompt || "A run that is starting"}</h1>
    <div class="row"><span id="status"><${Pill} state=${status}/></span>
      ${status === "running" && last ? html`<span class="small" aria-live="polite">at ${last.hypothesis || ""} ${plain(last.node)}</span>` : null}
      ${status === "running" ? html`<button type="button" id="pause" title="finishes the step under way, then waits" ...${only("run")} onClick=${() => tell("pause")}>Pause</button>` : null}
      ${status === "pausing" ? html`<span class="small" role="status">finishes ${last ? `${last.hypothesis || ""} ${plain(last.node)}` : "its step"}, then waits</span>` : null}
      ${["running", "starting", "pausing"].includes(status) ? html`<button type="button" id="stop" title="ends at once; the step under way is begun again later" ...${only("run")} onClick=${() => tell("stop")}>Stop</button>` : null}
      ${["stopped", "paused", "interrupted", "failed"].includes(status) && data.folder ? html`<button type="button" id="resume" class="first" ...${only("run")} onClick=${() => tell("resume")}>Go on</button>` : null}
      ${status === "escalated" ? html`<button type="button" class="first" ...${only("run")} onClick=${() => tell("resume", { answer: "retry" })}>Run the mended program</button><button type="button" ...${only("run")} onClick=${() => tell("resume", { answer: "abandon" })}>Give the analysis up</button>` : null}
      ${status === "waiting for review" ? html`<a class="button" id="to-review" href=${`/review?run=${address(name)}`}>Review</a>` : null}
      ${live?.report || data.report ? html`<a class="button" id="to-report" data-plain href=${`${base}/report`}>Report</a>` : null}
    </div>
    ${problem ? html`<p class="said bad" role="alert" id="problem">${problem}</p>` : null}<${Wrong} error=${wrong}/>
    <div class="grid">
      <p><span class="number">${seconds(spent.seconds)}</span><span class="small soft">in its steps</span></p>
      <p><span class="number">${count(spent.read + spent.written)}</span><span class="small soft">tokens, ${count(spent.written)} of them written</span></p>
      <p><span class="number">${usd(spent.usd)}</span><span class="small soft">${data.budget_usd ? `of a budget of ${usd(data.budget_usd)}` : "paid so far"}</span></p>
    </div>
    <${Diagram} states=${states} hypotheses=${data.hypotheses} chosen=${chosen} choose=${choose}/>
    <p class="small soft">Choose a step to see what its agent was given, called and answered.</p>
    ${chosen ? html`<${Agents} name=${name} chosen=${chosen} step=${states[chosen]}/>` : null}
    <details><summary>Events (${events.length})</summary><ol class="small" id="events">${events.map((event) => html`<li data-at=${event.time} data-shown=${event.shown}><span class="soft">${event.time.slice(11, 19)}</span> ${event.event} ${event.hypothesis || ""} ${event.node ? plain(event.node) : ""} ${event.message || ""}</li>`)}</ol></details>
    <${Log} name=${name}/>
    ${data.folder ? html`<p class="small soft">Folder: ${data.folder}</p>` : null}`;
}
