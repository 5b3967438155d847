// The time of day: the service's, where this computer's clock is wrong.

const WRONG_MS = 2 * 60_000;
let ahead = 0;

/** Return the time, in ms. */
export function now() {
  return Date.now() - ahead;
}

/** Return the beginning of today, or of a later day, as an instant for the service. */
export function midnight(later = 0) {
  const day = new Date(now());
  return new Date(day.getFullYear(), day.getMonth(), day.getDate() + later).toISOString();
}

/** Compare the clock with an answer's Date; return whether what is known of it has changed. */
export function compareClock(date) {
  const difference = Date.now() - Date.parse(date);
  if (Number.isNaN(difference) || Math.abs(difference - ahead) < WRONG_MS) return false;
  ahead = Math.abs(difference) < WRONG_MS ? 0 : difference;
  return true;
}

/** Return by how many ms this computer's clock is ahead of the service's; 0 where it is right. */
export function clockError() {
  return ahead;
}
