// Two reports side by side.
import { html, address, useLoaded, useState } from "./lib.js";

export function Compare({ query }) {
  const { data } = useLoaded("/api/runs");
  const done = data ? data.runs.filter((run) => run.report) : [];
  const [left, setLeft] = useState(query.get("a") || "");
  const [right, setRight] = useState(query.get("b") || "");
  const pick = (value, set, words) => html`<label class="stack">${words}<select value=${value} onChange=${(e) => set(e.target.value)}>
    <option value="">choose a run</option>${done.map((run) => html`<option value=${run.name}>${run.prompt} (${run.created.slice(0, 10)})</option>`)}</select></label>`;
  const show = (name, words) => name ? html`<iframe title=${words} src=${`/api/runs/${address(name)}/report`}></iframe>` : html`<p class="soft">Choose a run above.</p>`;
  return html`<h1>Two runs side by side</h1>
    <div class="grid"><section>${pick(left, setLeft, "Left")}${show(left, "report on the left")}</section>
    <section>${pick(right, setRight, "Right")}${show(right, "report on the right")}</section></div>`;
}
