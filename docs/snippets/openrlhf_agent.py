from ludus.integrations.openrlhf import LudusAgentExecutor


class AgentExecutor(LudusAgentExecutor):
    turns = 8
    template_options = {"enable_thinking": False}
