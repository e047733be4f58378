// The page of an error's code: what the error means, whether any number is wrong, and what to do. As `txbatch explain` prints it.

import { get, part } from "./api.js";
import { open } from "./dialog.js";
import { h, region } from "./dom.js";
import { button, ill, refusal } from "./pieces.js";

const CODE = /\bTX\d{3}\b/;

/** Return the button that explains the first code in a text; null for a text without a code. */
export function codeIn(text) {
  const found = CODE.exec(text ?? "");
  return found && button(`Explain ${found[0]}`, () => explain(found[0]), { class: "small" });
}

function explain(code) {
  open(code, (hands) => {
    const said = ({ text }) => hands.say(h("pre", region(`The page of ${code}`), read(text)));
    get(`errors/${part(code)}`).then(said).catch((error) => hands.say(ill(refusal(error))));
    return { told: null, fields: null, buttons: null };
  });
}

// Lines of a paragraph are one line, which the dialog breaks; marks of headings and of bold words go.
function read(text) {
  return text.replace(/(\S)\n(?=[^\s|-])(?!\d+\. )/g, "$1 ").replace(/^#+ /gm, "").replaceAll("**", "");
}
