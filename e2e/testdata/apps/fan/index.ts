import type { AppDefinition } from "@w6w/types";
import { fan } from "./triggers/fan.ts";

export default {
  actions: [],
  triggers: [fan],
} satisfies AppDefinition;
