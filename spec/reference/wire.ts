// JSON as it travels: values, refusals, and what a double cannot hold.
import { createHash } from "node:crypto";

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type JsonObject = { [name: string]: Json };

/** An error that the standard defines: the request is answered with it. */
export class Refusal extends Error {
  readonly code: number;
  readonly data: JsonObject;

  constructor(code: number, message: string, data: JsonObject = {}) {
    super(message);
    this.code = code;
    this.data = data;
  }

  /** The error object of JSON-RPC. */
  get error(): JsonObject {
    return { code: this.code, message: this.message, data: this.data };
  }
}

const DEEPEST = 200;

type Reviver = (name: string, value: unknown, context: { source?: string }) => unknown;
const parseWithSource = JSON.parse as (text: string, reviver: Reviver) => unknown;

/** Parse JSON; an integer whose digits a double would change becomes a bigint, which no schema here allows. */
export function parse(text: string): unknown {
  return parseWithSource(text, (_name, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context.source ?? "")
      ? BigInt(context.source ?? 0)
      : value,
  );
}

/** Write JSON; half of a surrogate pair becomes U+FFFD. */
export function write(value: unknown): string {
  return JSON.stringify(value, (_name, each: unknown) => (typeof each === "string" ? each.toWellFormed() : each));
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Return what keeps a value from being JSON that every peer reads alike, or null; halves of surrogate pairs if asked. */
export function findUnsound(value: unknown, halves = true, depth = 0): string | null {
  if (typeof value === "bigint") return `the integer ${value} is beyond 2^53 - 1`;
  if (typeof value === "number") return Number.isFinite(value) ? null : "a number is not finite";
  if (typeof value === "string") return value.isWellFormed() || !halves ? null : "a text holds half of a surrogate pair";
  if (value === null || typeof value === "boolean") return null;
  if (typeof value !== "object") return `${typeof value} is not JSON`;
  if (depth === DEEPEST) return `a value is nested more than ${DEEPEST} deep`;
  const parts = Array.isArray(value) ? value : Object.entries(value).flat();
  for (const part of parts) {
    const found = findUnsound(part, halves, depth + 1);
    if (found !== null) return found;
  }
  return null;
}

/** Return a digest that is the same for equal values, whatever the order of their fields. */
export function digest(value: Json): string {
  return createHash("sha256").update(JSON.stringify(sorted(value))).digest("base64");
}

function sorted(value: Json): Json {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isObject(value)) return value;
  const fields = Object.entries(value).map(([name, each]): [string, Json] => [name, sorted(each)]);
  return Object.fromEntries(fields.sort(([one], [other]) => (one < other ? -1 : 1)));
}
