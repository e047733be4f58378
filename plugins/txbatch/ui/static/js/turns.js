// Turns: ask, pause, ask again. No turn overlaps another, and none begins while the page is hidden.

const FAILED_SECONDS = 15;

// Asks by `ask`, which returns the seconds until the next turn.
export class Turns {
  constructor(ask) {
    this.ask = ask;
    this.busy = false;
    this.again = false;
    this.timer = null;
    document.addEventListener("visibilitychange", () => this.now());
  }

  // Begin a turn at once; after the present one, if one is going on.
  now() {
    clearTimeout(this.timer);
    if (document.visibilityState === "hidden") return;
    if (this.busy) this.again = true;
    else this.turn();
  }

  async turn() {
    this.busy = true;
    let seconds = FAILED_SECONDS;
    try {
      seconds = await this.ask();
    } finally {
      this.busy = false;
      this.next(seconds);
    }
  }

  next(seconds) {
    if (this.again) {
      this.again = false;
      this.now();
    } else this.timer = setTimeout(() => this.now(), seconds * 1000);
  }
}
