import type { AppDefinition } from "@w6w/types";
import { call } from "./triggers/call.ts";

export default {
  actions: [],
  triggers: [call],
} satisfies AppDefinition;
