// An environment whose calls break, wait and are counted, for the tests of the reference server.
import { Refused, type Environment, type Outcome, type World } from "../../spec/reference/environment.ts";
import { fields } from "../../spec/reference/schema.ts";

const inputSchema = fields({});
const names = ["count", "pause", "wait", "crash", "nan", "half", "refuse", "cut", "unscored"];
let opened = 0;

function open(task: { index: number }): World {
  const number = (opened += 1);
  let counted = 0;
  const calls: Record<string, () => Promise<Outcome>> = {
    count: async () => ({ text: String((counted += 1)), reward: { value: 0.5, components: { calls: { value: 0.5 } } } }),
    pause: () => new Promise((resolve) => setTimeout(() => resolve({ text: `paused ${(counted += 1)}` }), 30)),
    wait: () => new Promise(() => undefined),
    crash: async () => Promise.reject(new Error("PRIVATE")),
    nan: async () => ({ text: "not a number", reward: { value: Number.NaN } }),
    half: async () => ({ text: "\ud800" }),
    refuse: async () => Promise.reject(new Refused("not now")),
    cut: async () => ({ text: "cut", reward: { value: 0.25 }, done: "truncated" }),
    unscored: async () => ({ text: "?", reward: { value: null, reason: "no judge" } }),
  };
  return {
    async setUp() {
      if (task.index === 1) throw new Error("PRIVATE");
      return "Break it.";
    },
    call: (tool) => calls[tool]!(),
    grade: () => Promise.reject(new Error("PRIVATE")),
    async tearDown() {
      console.error(`torn down ${number}`);
    },
  };
}

const environment: Environment = {
  name: "broken",
  description: "Breaks.",
  version: "1",
  splits: [{ name: "train", type: "train", count: 2 }],
  tools: names.map((name) => ({ name, description: name, inputSchema })),
  seedable: false,
  gradable: true,
  rewardRange: null,
  task: (split, index) => ({ id: `t${index}`, split, index, fields: {}, secret: "PRIVATE" }),
  find: (_split, id) => (/^t\d$/.test(id) ? Number(id[1]) : null),
  create: (task) => open(task),
};

export default environment;
