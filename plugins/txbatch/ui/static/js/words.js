// Numbers, times and intervals in words. A number stays the text that it came as.

// The zone of all moments that are no intervals.
export const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone;
// The hours of each unit, and by how much they may differ.
const UNITS = [["hours", 1, 0.01], ["days", 24, 2], ["weeks", 168, 8], ["months", 705, 45]];
const formats = new Map();

// Return a number with its thousands grouped, any other text as it is.
export function digits(text) {
  if (text == null) return "–";
  return String(text).replace(/^-?\d+(?=$|\.\d+$)/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ","));
}

export function many(count, word, several = `${word}s`) {
  return `${digits(count)} ${String(count) === "1" ? word : several}`;
}

export function took(seconds) {
  if (seconds == null) return "–";
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function ago(moment) {
  return `${took(Math.max(0, Math.round((Date.now() - Date.parse(moment)) / 1000))).replace(".0", "")} ago`;
}

// Return a moment where the reader is, with its day if that is not today.
export function when(moment) {
  const { day, time } = at(moment, undefined);
  return day === at(Date.now(), undefined).day ? time : `${day} ${time}`;
}

// Return day and time of a moment, in a zone; null: in UTC.
export function at(moment, zone) {
  const parts = Object.fromEntries(format(zone).formatToParts(new Date(moment)).map((each) => [each.type, each.value]));
  const { year, month, day, hour, minute, second } = parts;
  return { day: `${year}-${month}-${day}`, time: `${hour}:${minute}:${second}`, minute: `${hour}:${minute}` };
}

function format(zone) {
  if (!formats.has(zone)) formats.set(zone, formatter(zone === null ? "UTC" : zone));
  return formats.get(zone);
}

function formatter(timeZone) {
  const two = "2-digit";
  const fields = { year: "numeric", month: two, day: two, hour: two, minute: two, second: two, hourCycle: "h23", timeZone };
  try {
    return new Intl.DateTimeFormat("en-GB", fields);
  } catch {
    return formatter("UTC");
  }
}

export function covers(start, end, zone) {
  if (!start || !end) return "–";
  const from = at(start, zone);
  const to = at(end, zone);
  const last = at(Date.parse(end) - 1, zone).day;
  if (from.time === "00:00:00" && to.time === "00:00:00") return from.day === last ? last : `${from.day} to ${last}`;
  if (from.day === last) return `${from.day} ${from.minute}–${to.minute}`;
  return `${from.day} ${from.minute} to ${to.day} ${to.minute}`;
}

export function upTo(moment, zone) {
  const { day, time, minute } = at(moment, zone);
  return time === "00:00:00" ? at(Date.parse(moment) - 1, zone).day : `${day} ${minute}`;
}

export function hours(start, end) {
  return (Date.parse(end) - Date.parse(start)) / 3600000;
}

// Return the hours that the first interval of some batches has; undefined if none is by time.
export function lengthOf(batches) {
  const timed = batches?.find((each) => each.start && each.end);
  return timed && hours(timed.start, timed.end);
}

export function unit(length) {
  return UNITS.find(([, mean, off]) => Math.abs(length - mean) < off)?.[0] ?? "intervals";
}

export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function clip(text, length = 160) {
  return text.length > length ? `${text.slice(0, length)}…` : text;
}

// Return the text of a note, which txbatch writes as Markdown.
export function plain(note) {
  if (!note.startsWith("txbatch: ")) return note;
  return note.replace(/`[^`]*`|\\([!-/:-@[-`{-~])/g, (all, escaped) => escaped ?? all);
}
