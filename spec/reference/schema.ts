// The part of JSON Schema that params, tools and environments need.
import { findUnsound, isObject, type Json, type JsonObject } from "./wire.ts";

export type Schema = {
  type?: string | string[];
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  items?: Schema;
  minItems?: number;
  enum?: Json[];
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  default?: Json;
};

/** A value that does not fit a schema. */
export class Invalid extends Error {}

const IS_TYPE: Record<string, (value: unknown) => boolean> = {
  null: (value) => value === null,
  boolean: (value) => typeof value === "boolean",
  integer: (value) => Number.isSafeInteger(value),
  number: (value) => typeof value === "number",
  string: (value) => typeof value === "string",
  array: (value) => Array.isArray(value),
  object: (value) => isObject(value),
};

/** Return the value with the defaults of missing fields; throw Invalid, with the field's name, if it does not fit. */
export function check(schema: Schema, value: unknown, name: string): Json {
  const types = schema.type === undefined ? [] : [schema.type].flat();
  if (types.length && !types.some((type) => IS_TYPE[type]?.(value))) {
    throw new Invalid(`${name} must be ${types.map(nameOf).join(" or ")}`);
  }
  if (schema.enum && !schema.enum.some((each) => each === value)) {
    throw new Invalid(`${name} must be ${schema.enum.map((each) => JSON.stringify(each)).join(" or ")}`);
  }
  if (typeof value === "number") checkRange(value, schema.minimum, schema.maximum, name);
  if (typeof value === "string" && (schema.minLength ?? schema.maxLength) !== undefined) {
    checkRange([...value].length, schema.minLength, schema.maxLength, `the length of ${name}`);
  }
  if (Array.isArray(value)) {
    checkRange(value.length, schema.minItems, undefined, `the length of ${name}`);
    return schema.items ? value.map((each, index) => check(schema.items ?? {}, each, `${name}[${index}]`)) : value;
  }
  return isObject(value) ? checkFields(schema, value, name) : (value as Json);
}

function checkFields(schema: Schema, value: JsonObject, name: string): JsonObject {
  const known = schema.properties ?? {};
  const others = schema.additionalProperties ?? true;
  const prefix = name === "params" ? "" : `${name}.`;
  const fields: [string, Json][] = [];
  for (const [field, given] of Object.entries(value)) {
    if (Object.hasOwn(known, field)) continue;
    if (others === false) throw new Invalid(`${name} has an unknown field ${JSON.stringify(field)}`);
    fields.push([field, others === true ? given : check(others, given, prefix + field)]);
  }
  for (const [field, inner] of Object.entries(known)) {
    if (Object.hasOwn(value, field)) fields.push([field, check(inner, value[field], prefix + field)]);
    else if (inner.default !== undefined) fields.push([field, inner.default]);
    else if (schema.required?.includes(field)) throw new Invalid(`${name} lacks the field ${JSON.stringify(field)}`);
  }
  return Object.fromEntries(fields);
}

function checkRange(value: number, least: number | undefined, most: number | undefined, name: string): void {
  if (least !== undefined && value < least) throw new Invalid(`${name} must be at least ${least}`);
  if (most !== undefined && value > most) throw new Invalid(`${name} must be at most ${most}`);
}

function nameOf(type: string): string {
  return type === "integer" ? "an integer between -(2^53 - 1) and 2^53 - 1" : type;
}

/** Check a value that comes from outside: as `check` does, and that every peer reads it alike. */
export function checkGiven(schema: Schema, value: unknown, name: string, halves = true): JsonObject {
  const checked = check(schema, value, name);
  const unsound = findUnsound(value, halves);
  if (unsound !== null) throw new Invalid(`${name}: ${unsound}`);
  return checked as JsonObject;
}

/** Return the schema of an object of exactly these fields; those without a default are required. */
export function fields(properties: Record<string, Schema>): Schema {
  const required = Object.keys(properties).filter((name) => properties[name]?.default === undefined);
  return { type: "object", properties, required, additionalProperties: false };
}
