// Tokens with log-probabilities: classes of colour, texts of tokens that are parts of characters.

/** Upper limits of the classes p0 to p4 of a probability; above the last it is p5. */
const LIMITS = [0.05, 0.2, 0.5, 0.8, 0.95];

/** The class of a probability's colour. */
export function classOf(logprob) {
  const probability = Math.exp(logprob);
  const found = LIMITS.findIndex((limit) => probability < limit);
  return `p${found < 0 ? LIMITS.length : found}`;
}

/** What each class means, for the legend. */
export const CLASSES = [
  ["p0", "below 5 %"],
  ["p1", "5–20 %"],
  ["p2", "20–50 %"],
  ["p3", "50–80 %"],
  ["p4", "80–95 %"],
  ["p5", "95 % and more"],
];

/** Gives tokens their texts: a character that spans tokens belongs to the last of them. */
export class TokenText {
  #decoder = new TextDecoder("utf-8");

  of(token) {
    if (!token.bytes) return token.token;
    return this.#decoder.decode(new Uint8Array(token.bytes), { stream: true });
  }
}

/** The alternatives of a token in descending order, the sampled one marked and always there. */
export function alternativesOf(token) {
  const found = (token.top_logprobs ?? []).map((one) => ({ ...one, isSampled: same(one, token) }));
  if (!found.some(({ isSampled }) => isSampled)) found.push({ ...token, isSampled: true });
  return found.sort((a, b) => b.logprob - a.logprob);
}

function same(one, other) {
  return one.token === other.token && String(one.bytes) === String(other.bytes);
}
