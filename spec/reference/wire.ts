// JSON as it travels: values, refusals, and what a double cannot hold.
import { createHash, randomUUID } from "node:crypto";
import { inspect } from "node:util";

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type JsonObject = { [name: string]: Json };

/** An error that the standard or MCP defines: the request is answered with it. */
export class Refusal extends Error {
  readonly error: JsonObject & { code: number };
  constructor(code: number, message: string, data: JsonObject = {}) {
    super(message);
    this.error = { code, message, data };
  }
}

/** Log a fault; return the id of the line in the log, which is all that a caller sees of it. */
export function logIncident(what: string, error: unknown): string {
  const incident = randomUUID();
  console.error(`incident ${incident} in ${what}:`, error);
  return incident;
}

/** Parse JSON; an integer whose digits a double would change becomes a bigint, which `findUnsound` finds. */
export function parse(text: string): unknown {
  const revive = (_name: string, value: unknown, { source = "" }: { source?: string } = {}) =>
    Number.isInteger(value) && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) ? BigInt(source) : value;
  return JSON.parse(text, revive);
}

/** Write JSON; half of a surrogate pair becomes U+FFFD. */
export const write = (value: unknown): string =>
  JSON.stringify(value, (_name, each: unknown) => (typeof each === "string" ? each.toWellFormed() : each));

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Return what keeps a value from being JSON that all peers read alike, or null; values of some types are allowed. */
export function findUnsound(value: unknown, allowed: string[] = [], depth = 0): string | null {
  if (allowed.includes(typeof value)) return null;
  if (typeof value === "bigint") return `the integer ${value} is beyond 2^53 - 1`;
  if (typeof value === "number") return Number.isFinite(value) ? null : "a number is not finite";
  if (typeof value === "string") return value.isWellFormed() ? null : "half of a surrogate pair";
  if (value === null || typeof value === "boolean") return null;
  if (typeof value !== "object" || depth > 200) return `${typeof value} is not JSON, or nested too deeply`;
  const parts: unknown[] = Array.isArray(value) ? value : Object.entries(value).flat();
  return parts.reduce<string | null>((found, part) => found ?? findUnsound(part, allowed, depth + 1), null);
}

const WHOLE = { sorted: true, depth: Infinity, breakLength: Infinity, maxArrayLength: Infinity, maxStringLength: Infinity };

/** Return a digest that is the same for equal values, whatever the order of their fields. */
export const digest = (value: unknown): string => createHash("sha256").update(inspect(value, WHOLE)).digest("hex");
