// What an environment is to this server, and the schemas of what it may return.
import { fields, type Schema } from "./schema.ts";
import type { Json, JsonObject } from "./wire.ts";

export type Block = { type: "text"; text: string } | { type: "image"; data: string; mimeType: string };
export type Message = { role: "system" | "user" | "assistant"; content: Block[] };
export type Component = { value: number; weight?: number; evidence?: string | null };
export type Reward = {
  value: number | null;
  components?: Record<string, Component>;
  missing?: Record<string, string>;
  reason?: string | null;
  rubric?: string | null;
};
export type ToolSpec = { name: string; description: string; inputSchema: Schema };
export type Split = { name: string; type: "train" | "validation" | "test"; count: number };

/** A task; `fields` may be seen by trainers and agents, `secret` by the environment alone. */
export type Task = { id: string; split: string; index: number; fields: JsonObject; secret: Json };

export type Outcome = {
  content: Block[];
  reward?: Reward | null;
  metadata?: JsonObject;
  /** Set when this call finishes the task, or when the environment cuts the episode short. */
  done?: "completed" | "truncated" | null;
};

/** One episode of an environment. The calls come one at a time, each after the one before it. */
export interface World {
  /** Set the world up and return the prompt. */
  setUp(): Promise<Message[]>;
  /** Call a tool with arguments that fit its schema. A throw of `Refused` is shown to the agent. */
  call(tool: string, args: JsonObject): Promise<Outcome>;
  /** Grade a final answer; only if the environment is gradable. */
  grade(answer: string): Promise<Reward>;
  /** Free what the world holds. Called once, after setUp has begun. */
  tearDown(): Promise<void>;
}

export interface Environment {
  name: string;
  description: string;
  version: string;
  splits: Split[];
  tools: ToolSpec[];
  seedable: boolean;
  gradable: boolean;
  rewardRange: [number, number] | null;
  /** Return a task by its index, which is below the split's count. */
  task(split: string, index: number): Task;
  /** Return the index of a task's id, or null. */
  find(split: string, id: string): number | null;
  create(task: Task, seed: number): World;
}

/** A tool's refusal of a call: a mistake of the policy, which it sees. */
export class Refused extends Error {}

const text: Schema = { type: "string" };
const remark: Schema = { type: ["string", "null"], default: null };
const block: Schema = {
  type: "object",
  properties: { type: { enum: ["text", "image"] }, text, data: text, mimeType: text },
  required: ["type"],
  additionalProperties: false,
};
const component = fields({ value: { type: "number" }, weight: { type: "number", default: 1 }, evidence: remark });
export const REWARD = fields({
  value: { type: ["number", "null"] },
  components: { type: "object", additionalProperties: component, default: {} },
  missing: { type: "object", additionalProperties: text, default: {} },
  reason: remark,
  rubric: remark,
});
export const OUTCOME = fields({
  content: { type: "array", items: block },
  reward: { ...REWARD, type: ["object", "null"], default: null },
  metadata: { type: "object", default: {} },
  done: { enum: ["completed", "truncated", null], default: null },
});
export const PROMPT: Schema = {
  type: "array",
  minItems: 1,
  items: fields({
    role: { enum: ["system", "user", "assistant"], default: "user" },
    content: { type: "array", items: block },
  }),
};
