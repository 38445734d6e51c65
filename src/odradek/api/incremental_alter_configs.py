"""IncrementalAlterConfigs (key 44), versions 0-1.

v1  flexible encoding

Changes single keys. The broker checks what concerns itself, the controller decides about the rest; each resource is answered for.
"""

from odradek.api.config_resources import Alteration, alter
from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.core.config.alteration import Change
from odradek.core.controller.configs import Resource, incremental_alter_configs
from odradek.wire.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

KEY = 44

Answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


async def handle(request: IncrementalAlterConfigsRequest, ctx: Context) -> IncrementalAlterConfigsResponse:
    alterations = [
        Alteration(
            Resource(wanted.resource_type, wanted.resource_name),
            [Change(each.name, each.config_operation, each.value) for each in wanted.configs],
            replaces=False,
        )
        for wanted in request.resources
    ]

    async def ask(numbers: list[int]) -> list[Answer]:
        rest = [request.resources[number] for number in numbers]
        asked = IncrementalAlterConfigsRequest(resources=rest, validate_only=request.validate_only)
        decided = await decide(asked, ctx, lambda controller: incremental_alter_configs(controller.image, asked, ctx.node.config))
        return decided.responses

    return IncrementalAlterConfigsResponse(
        responses=await alter(alterations, ctx, Answer, ask, validate_only=request.validate_only)
    )
