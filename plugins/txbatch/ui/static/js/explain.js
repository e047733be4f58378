// The page of an error's code, as `txbatch explain` prints it, and the buttons that do the same.

import { get, part } from "./api.js";
import { open } from "./dialog.js";
import { h, p, region } from "./dom.js";
import { button, ill, refusal } from "./pieces.js";

const CODE = /\bTX\d{3}\b/;
const BUTTONS = {
  run: "once the cause is mended (until then no retry helps), clear the failed run, or trigger the DAG",
  plan: "Plan first, behind Count again…",
  abort: "Give up… on the page Batch",
  batches: "the page Transactions",
  restate: "Count again… on the page Batch",
  verify: "Verify…",
  rebuild: "Rebuild",
  why: "the page Why",
};

export function codeIn(text) {
  const found = CODE.exec(text ?? "");
  return found && button(`Explain ${found[0]}`, () => explain(found[0]), { class: "small" });
}

function explain(code) {
  open(code, (hands) => {
    const said = ({ text }) => hands.say(h("pre", region(`The page of ${code}`), read(text)), buttons(text));
    get(`errors/${part(code)}`).then(said).catch((error) => hands.say(ill(refusal(error))));
    return { told: null, fields: null, buttons: null };
  });
}

// The way on these pages to what a command of the text does.
function buttons(text) {
  const there = Object.keys(BUTTONS).filter((name) => text.includes(`txbatch ${name}`));
  return there.length > 0 && [p("", "In Airflow, without a shell:"), h("ul", {}, there.map((name) => h("li", {}, h("code", {}, `txbatch ${name}`), `: ${BUTTONS[name]}`)))];
}

// Lines of a paragraph become one line; marks of headings and of bold words go.
function read(text) {
  return text.replace(/(\S)\n(?=[^\s|-])(?!\d+\. )/g, "$1 ").replace(/^#+ /gm, "").replaceAll("**", "");
}
