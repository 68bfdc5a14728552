// Every call of two clients: `node clients.mjs URL MODEL`, in a folder with node_modules, prints a line of JSON for each.
import OpenAI from "openai";
import { OpenAIEmbeddings } from "@langchain/openai";

const [url, model] = process.argv.slice(2);
const input = ["A man plays a guitar.", "It rains."];

async function say(client, call, ask) {
  let vectors = null;
  let error = null;
  try {
    vectors = await ask();
  } catch (caught) {
    error = `${caught.status ?? ""} ${caught.message}`.trim();
  }
  console.log(JSON.stringify({ client, call, vectors, error }));
}

const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const create = async (body) => (await openai.embeddings.create({ model, input, ...body })).data.map((row) => row.embedding);
for (const output_dtype of ["float", "code", "ubinary", "int8", null]) {
  for (const encoding_format of [undefined, "float", "base64", null]) {
    const call = `${output_dtype} ${encoding_format}`;
    await say("openai-node", call, () => create({ output_dtype, encoding_format }));
  }
}
await say("openai-node", "dimensions", () => create({ model: `${model}:query`, dimensions: 8 }));
await say("openai-node", "models.list", async () => (await openai.models.list()).data.map((one) => one.id));
await say("openai-node", "models.retrieve", async () => [(await openai.models.retrieve(`${model}:query`)).id]);

const configuration = { baseURL: `${url}/v1` };
const langchain = new OpenAIEmbeddings({ model, apiKey: "none", maxRetries: 0, configuration });
await say("langchain-js", "embedDocuments", () => langchain.embedDocuments(input));
await say("langchain-js", "embedQuery", async () => [await langchain.embedQuery(input[0])]);
