// An agent on Vercel's AI SDK: a loop of the SDK's own, over the wire that its argument names.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { experimental_createMCPClient as createMCPClient } from "@ai-sdk/mcp";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText } from "ai";
import { readFileSync } from "node:fs";

const [, , wire, how] = process.argv;
const task = JSON.parse(readFileSync(0, "utf8"));
const openai = createOpenAI({ baseURL: task.openai_base_url, apiKey: task.api_key });
const models = {
  responses: () => openai(task.model), // the SDK's default: it stores responses, and refers to their items
  chat: () => openai.chat(task.model),
  messages: () => createAnthropic({ baseURL: `${task.anthropic_base_url}/v1`, apiKey: task.api_key })(task.model),
  google: () =>
    createGoogleGenerativeAI({ baseURL: `${task.anthropic_base_url}/v1beta`, apiKey: task.api_key })(task.model),
};
const client = await createMCPClient({ transport: { type: "http", url: task.play_url } });
const request = {
  model: models[wire](),
  prompt: task.prompt,
  tools: await client.tools(),
  stopWhen: stepCountIs(12),
};
if (how === "stream") await streamText(request).consumeStream({ onError: (error) => { throw error; } });
else await generateText(request);
await client.close();
