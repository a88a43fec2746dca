// Cohorts: the data dictionary, what is missing, what would mislead an analysis.
import { html, address, count, useLoaded, useState, Wrong } from "./lib.js";

const SHARE = (part) => `${Math.round(100 * part)}%`;
const WEIGHT = { error: "bad", warning: "warn", info: "" };

function Findings({ name }) {
  const { data, error } = useLoaded(`/api/cohorts/${address(name)}/findings`);
  if (!data) return html`<p class="soft" role="status">${error ? "" : "Checking for problems that could mislead an analysis …"}</p><${Wrong} error=${error}/>`;
  return html`<h2>Problems that could mislead an analysis</h2>
    ${data.length ? html`<ul id="findings">${data.map((item) => html`<li><span class=${`pill ${WEIGHT[item.severity]}`}>${item.severity}</span> <strong>${item.where}</strong>: ${item.message}
      ${item.remedy ? html`<br/><span class="small soft">What to do: ${item.remedy}</span>` : null}</li>`)}</ul>` : html`<p id="findings">None found.</p>`}`;
}

function Cohort({ name }) {
  const { data, error } = useLoaded(`/api/cohorts/${address(name)}`);
  const [words, setWords] = useState("");
  const [byMissing, setByMissing] = useState(false);
  if (!data) return html`<${Wrong} error=${error}/>`;
  const rows = data.variables.filter((item) => [item.key, item.label, ...item.synonyms].join(" ").toLowerCase().includes(words.toLowerCase()));
  if (byMissing) rows.sort((one, other) => other.missing - one.missing);
  const undeclared = data.variables.filter((item) => item.known_at === "unknown").length;
  return html`<p>${count(data.n_patients)} patients${data.simulated ? html` <span class="pill warn">simulated</span>` : null}; ${count(data.genes)} genes measured in ${count(data.expression_n)} of them${data.expression_unit ? `, ${data.expression_unit}` : ""}. <span class="soft">${data.license}</span></p>
    <h2>Outcomes</h2>
    <div class="scroll" tabindex="0" role="region" aria-label="Outcomes"><table><thead><tr><th>Outcome</th><th>Kind</th><th class="n">Patients</th><th class="n">Events</th><th class="n">Median follow-up</th></tr></thead><tbody>
      ${data.endpoints.map((item) => html`<tr><td>${item.label} <span class="soft">${item.key}</span></td><td>${item.kind}</td><td class="n">${item.n}</td><td class="n">${item.events ?? "–"}</td><td class="n">${item.median_follow_up == null ? "–" : `${item.median_follow_up} months`}</td></tr>`)}</tbody></table></div>
    <h2>Variables</h2>
    <div class="row"><label>Find <input id="find" value=${words} onInput=${(e) => setWords(e.target.value)}/></label>
      <label><input id="by-missing" type="checkbox" checked=${byMissing} onChange=${(e) => setByMissing(e.target.checked)}/> Most missing first</label></div>
    ${undeclared ? html`<p class="said warn">Were these ${undeclared} of ${data.variables.length} variables measured before follow-up began? Until <code>cohort.toml</code> says so (<code>known_at = "baseline"</code>), no claim can rest on them.</p>` : null}
    <div class="scroll" tabindex="0" role="region" aria-label="Variables"><table id="variables"><thead><tr><th>Variable</th><th>Kind</th><th class="n">Patients</th><th>Missing</th><th>Measured</th><th>Levels</th></tr></thead><tbody>
      ${rows.map((item) => html`<tr><td>${item.label} <span class="soft">${item.key}</span></td><td>${item.kind}${item.unit ? `, ${item.unit}` : ""}</td><td class="n">${item.n}</td>
        <td><svg width="60" height="10" aria-hidden="true"><rect width="60" height="10" fill="none" stroke="currentColor" opacity=".4"/><rect width=${60 * item.missing} height="10" fill="currentColor" opacity=".6"/></svg> ${SHARE(item.missing)}</td>
        <td>${item.known_at}</td><td class="soft">${Object.entries(item.levels).map(([level, n]) => `${level}: ${n}`).join(", ")}</td></tr>`)}</tbody></table></div>
    ${data.joins.length ? html`<h2>Patients in each file</h2><ul class="small">${data.joins.map((join) => html`<li>${join.step}: ${join.lost} lost <span class="soft">${join.reason}</span></li>`)}</ul>` : null}
    ${data.notes.length ? html`<h2>Notes</h2><ul class="small">${data.notes.map((note) => html`<li>${note}</li>`)}</ul>` : null}
    <${Findings} name=${name}/>`;
}

export function Cohorts({ site, query, go }) {
  const name = query.get("cohort") || site.cohorts[0].id;
  const title = site.cohorts.find((item) => item.id === name)?.title || name;
  return html`<h1>${title}</h1>
    <label>Cohort <select id="cohort" value=${name} onChange=${(e) => go(`/cohorts?cohort=${address(e.target.value)}`)}>${site.cohorts.map((c) => html`<option value=${c.id}>${c.title}</option>`)}</select></label>
    <${Cohort} key=${name} name=${name}/>`;
}
