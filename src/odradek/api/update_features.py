"""UpdateFeatures (key 57), versions 0-2.

v1  upgrade types; validate only
v2  one answer for all features

The controller decides; the answer is given when that is committed.
"""

from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.wire.messages import UpdateFeaturesRequest, UpdateFeaturesResponse

KEY = 57


async def handle(request: UpdateFeaturesRequest, ctx: Context) -> UpdateFeaturesResponse:
    return await decide(request, ctx, lambda controller: controller.update_features(request, ctx.version))
