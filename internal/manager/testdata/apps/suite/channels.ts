interface Input {
  form: { workspace: string };
  dependsOn: { workspace: string };
}

export default async function channels({ form, dependsOn }: Input) {
  if (form.workspace !== dependsOn.workspace) throw new Error("the form and what is depended on differ");
  return [{ value: dependsOn.workspace + "-general", label: "general" }, dependsOn.workspace + "-random"];
}
