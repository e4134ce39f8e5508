// Qwen Code as a harness: its own MCP client plays at the agent endpoint of the episode.

import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";

const [, , qwenCode] = process.argv; // the folder node_modules/@qwen-code/qwen-code
const task = JSON.parse(readFileSync(0, "utf8"));
const settings = {
  $version: 3,
  mcpServers: { ludus: { httpUrl: task.play_url, trust: true } },
  security: { auth: { selectedType: "openai" } },
  model: { name: task.model, skipStartupContext: true },
  general: { enableAutoUpdate: false },
  privacy: { usageStatisticsEnabled: false },
  telemetry: { enabled: false },
  memory: { enableManagedAutoMemory: false, enableManagedAutoDream: false },
  skills: { disabledLevels: ["bundled", "user", "project", "extension"] },
  // The policy acts by the tools of the episode, and by none of Qwen Code's own.
  tools: { approvalMode: "yolo", core: ["none"], toolSearch: { enabled: false } },
  permissions: {
    deny: [
      "agent", "enter_worktree", "exit_worktree", "get_goal", "list_agents", "record_artifact", "report_findings",
      "send_message", "skill", "task_stop", "update_goal",
    ],
  },
};
writeFileSync("qwen-settings.json", JSON.stringify(settings));

const system = task.messages[0]?.role === "system" ? task.messages.shift().content : "You solve tasks with tools.";
const run = spawnSync(process.execPath, [`${qwenCode}/cli.js`, "--system-prompt", system, "--output-format", "json"], {
  input: task.messages.map((message) => message.content).join("\n\n"),
  env: {
    ...process.env,
    QWEN_CODE_SYSTEM_SETTINGS_PATH: "qwen-settings.json",
    QWEN_CODE_NO_RELAUNCH: "1",
    QWEN_CODE_SUPPRESS_YOLO_WARNING: "1",
    NODE_NO_WARNINGS: "1",
  },
  stdio: ["pipe", "pipe", "inherit"],
  maxBuffer: 2 ** 30,
});

function outcome() {
  if (run.status === null) return [1, `Qwen Code ended by ${run.signal ?? run.error}`];
  let events;
  try {
    events = JSON.parse(run.stdout);
  } catch {
    return [run.status || 1, `Qwen Code ended with exit code ${run.status} and printed no result: ${run.stdout}`];
  }
  const server = events.find((event) => event.subtype === "init")?.mcp_servers?.[0];
  if (server?.status !== "connected") return [1, `Qwen Code did not connect to the episode: ${server?.status}`];
  const result = events.at(-1);
  const message = result.error?.message ?? "";
  // An empty reply, or the same call over and over, is the policy's own doing, and no crash of the harness.
  const isPolicy = result.type === "result" && !/^\[API Error: (?!Model stream ended)/.test(message);
  return [isPolicy ? 0 : 1, message];
}

const [code, message] = outcome();
if (message) console.error(message);
process.exit(code);
