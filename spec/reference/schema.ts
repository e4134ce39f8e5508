// The part of JSON Schema that params, tools and environments need.
import { findUnsound, isObject, type Json, type JsonObject } from "./wire.ts";

type Range = { minimum?: number; maximum?: number; minLength?: number; maxLength?: number };
type Fields = { properties?: Record<string, Schema>; required?: string[]; additionalProperties?: boolean | Schema };
export type Schema = Range & Fields & { type?: string | string[]; enum?: Json[]; default?: Json };

export const TEXT: Schema = { type: "string" };
export const ANY_OBJECT: Schema = { type: "object", default: {} };
export const KEY: Schema = { ...TEXT, minLength: 1, maxLength: 128 };
export const integer = (minimum: number, maximum?: number): Schema => ({ type: "integer", minimum, maximum });
/** The schema that allows null too, by default. */
export const nullable = (one: Schema): Schema => ({ ...one, type: [one.type ?? [], "null"].flat(), default: null });

/** The schema of an object of exactly these fields; those without a default are required. */
export function fields(properties: Record<string, Schema>): Schema {
  const required = Object.keys(properties).filter((name) => properties[name]?.default === undefined);
  return { type: "object", properties, required, additionalProperties: false };
}

/** A value that does not fit a schema; the message names the field. */
export class Invalid extends Error {}

/** Check a value as `check` does, and that it is JSON that all peers read alike. */
export function checkSound(schema: Schema, value: unknown, name: string, allowed: string[] = []): Json {
  const unsound = findUnsound(value, allowed);
  if (unsound !== null) throw new Invalid(`${name}: ${unsound}`);
  return check(schema, value, name);
}

/** Return a value with the defaults of missing fields; throw Invalid if it does not fit. */
export function check(schema: Schema, value: unknown, name: string): Json {
  const { enum: allowed, minimum = -Infinity, maximum = Infinity, minLength = 0, maxLength = Infinity } = schema;
  const types = [schema.type ?? "any"].flat();
  const isText = typeof value === "string";
  const size = isText ? [...value].length : typeof value === "number" ? value : null;
  const [least, most] = isText ? [minLength, maxLength] : [minimum, maximum];
  if (!types.some((type) => isOfType(type, value))) throw new Invalid(`${name} must be of type ${types.join(" or ")}`);
  if (size !== null && (size < least || size > most)) throw new Invalid(`${name} must be or have ${least} to ${most}`);
  if (allowed && !allowed.some((each) => each === value)) throw new Invalid(`${name} is not one of ${allowed.join()}`);
  return isObject(value) ? checkFields(schema, value, name) : (value as Json);
}

function isOfType(type: string, value: unknown): boolean {
  if (type === "integer" || type === "any") return type === "any" || Number.isSafeInteger(value);
  return type === "null" ? value === null : type === "object" ? isObject(value) : typeof value === type;
}

function checkFields({ properties = {}, ...schema }: Schema, value: JsonObject, name: string): JsonObject {
  const checked: [string, Json][] = Object.entries(value).map(([field, given]) => {
    const inner = (Object.hasOwn(properties, field) ? properties[field] : schema.additionalProperties) ?? true;
    if (inner === false) throw new Invalid(`${name} has an unknown field ${JSON.stringify(field)}`);
    return [field, inner === true ? given : check(inner, given, `${name}.${field}`)];
  });
  for (const [field, { default: missing }] of Object.entries(properties)) {
    if (Object.hasOwn(value, field)) continue;
    if (missing !== undefined) checked.push([field, missing]);
    else if (schema.required?.includes(field)) throw new Invalid(`${name} lacks the field ${JSON.stringify(field)}`);
  }
  return Object.fromEntries(checked);
}
