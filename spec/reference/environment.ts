// What an environment is to this server.
import type { Schema } from "./schema.ts";
import type { Json, JsonObject } from "./wire.ts";

/** What a step or an answer earned; without a value, for a reason. */
export type Reward = { value: number | null; components?: Record<string, { value: number }>; reason?: string | null };
export type Split = { name: string; type: "train" | "validation" | "test"; count: number };
/** A task; trainers see its public `fields`, and only the environment sees its `secret`. */
export type Task = { id: string; split: string; index: number; fields: JsonObject; secret: Json };
/** What a call of a tool did; `done` if it finished the task, or if the environment cuts the episode short. */
export type Outcome = { text: string; reward?: Reward; metadata?: JsonObject; done?: "completed" | "truncated" | null };

/** A tool's refusal of a call: a mistake of the policy, which sees the message. */
export class Refused extends Error {}

/** The world of one episode. Its methods are called one at a time, except for `tearDown`. */
export interface World {
  setUp(): Promise<string>; // returns the prompt
  call(tool: string, args: JsonObject): Promise<Outcome>; // with arguments that fit the schema; may throw `Refused`
  grade(answer: string): Promise<Reward>;
  tearDown(): Promise<void>; // called once, even while another method runs
}

export interface Environment {
  name: string; description: string; version: string;
  splits: Split[];
  tools: { name: string; description: string; inputSchema: Schema }[];
  seedable: boolean; gradable: boolean; rewardRange: [number, number] | null;
  task(split: string, index: number): Task; // at an index below the split's count
  find(split: string, id: string): number | null; // the index that an id has
  create(task: Task, seed: number): World;
}
