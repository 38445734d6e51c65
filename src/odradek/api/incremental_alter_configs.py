"""IncrementalAlterConfigs (key 44), versions 0-1.

v1  flexible encoding

Changes single keys. The broker checks what concerns itself, the controller decides about the rest; each resource is answered for.
"""

from odradek.api.config_resources import Alteration, refusals
from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.core.config.alteration import Change
from odradek.core.controller.configs import Resource, incremental_alter_configs
from odradek.wire.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

KEY = 44

Answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


async def handle(request: IncrementalAlterConfigsRequest, ctx: Context) -> IncrementalAlterConfigsResponse:
    resources = [Resource(wanted.resource_type, wanted.resource_name) for wanted in request.resources]
    alterations = [
        Alteration(resource, [Change(each.name, each.config_operation, each.value) for each in wanted.configs], replaces=False)
        for resource, wanted in zip(resources, request.resources, strict=True)
    ]
    refused = refusals(alterations, ctx)
    rest = [wanted for resource, wanted in zip(resources, request.resources, strict=True) if resource not in refused]
    answers: dict[Resource, Answer] = {
        resource: Answer(
            error_code=refusal.code,
            error_message=refusal.message,
            resource_type=resource.type,
            resource_name=resource.name,
        )
        for resource, refusal in refused.items()
    }
    if rest:
        asked = IncrementalAlterConfigsRequest(resources=rest, validate_only=request.validate_only)
        decided = await decide(asked, ctx, lambda controller: incremental_alter_configs(controller.image, asked, ctx.node.config))
        answers |= {Resource(answer.resource_type, answer.resource_name): answer for answer in decided.responses}
    return IncrementalAlterConfigsResponse(responses=[answers[resource] for resource in resources])
