import type { AppDefinition, TriggerDefinition } from "@w6w/types";

/** No hooks: the body is the event. */
const plain: TriggerDefinition = { key: "plain", title: "Plain" };

/** The least that a hook can do. */
const identity: TriggerDefinition = {
  key: "identity",
  title: "Identity",
  handleIngest: ({ raw }) => [raw.body],
};

const secret = [{ key: "secret", label: "Secret", type: "secret", required: true }];

/** No hooks; the host checks the signature. */
const verified = {
  key: "verified",
  title: "Verified",
  verify: { preset: "github", secret: { param: "secret" } },
  params: secret,
} as TriggerDefinition;

/** All that the preset brings: signature, ping and delivery ids. */
const github = { key: "github", title: "GitHub", preset: "github", params: secret } as TriggerDefinition;

export default { actions: [], triggers: [plain, identity, verified, github] } satisfies AppDefinition;
