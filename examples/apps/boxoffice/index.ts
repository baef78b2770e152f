import type { AppDefinition } from "@w6w/types";
import { token } from "./auth/token.ts";
import { sold } from "./triggers/sold.ts";

export default {
  actions: [],
  auth: [token],
  triggers: [sold],
} satisfies AppDefinition;
